//! Runs `testdata/*.txt`: what changes hands, and to whom.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use baton_core::{AdapterId, Guarantee, PAGE_TOKENS, PageId, ReservationId, TokenId};
use baton_kv::{Origin, PageLedger, PageReservation, PageTable, ReceivedPages};

#[test]
fn sharing() {
    run("sharing.txt", include_str!("../testdata/sharing.txt"));
}

#[test]
fn reservations() {
    run("reservations.txt", include_str!("../testdata/reservations.txt"));
}

#[test]
fn eviction() {
    run("eviction.txt", include_str!("../testdata/eviction.txt"));
}

struct World {
    ledger: PageLedger,
    running: BTreeMap<String, (Vec<TokenId>, PageTable)>,
    reserved: BTreeMap<String, PageReservation>,
    /// Guards that were dropped, whose pages may still be written.
    dropped: BTreeMap<String, ReservationId>,
    next_reservation: u64,
}

/// Each command's answer must be the `=>` line after it; a command that answers nothing has none.
fn run(file: &str, script: &str) {
    let mut world = World {
        ledger: PageLedger::new(0, None),
        running: BTreeMap::new(),
        reserved: BTreeMap::new(),
        dropped: BTreeMap::new(),
        next_reservation: 0,
    };
    let lines: Vec<_> = script.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')).collect();
    for (i, &(number, line)) in lines.iter().enumerate() {
        if line.trim_start().starts_with("=>") {
            continue;
        }
        let answer = world.apply(line);
        let expected = lines.get(i + 1).and_then(|(_, l)| l.trim_start().strip_prefix("=>")).unwrap_or("").trim();
        assert_eq!(answer, expected, "{file}:{}: {line}", number + 1);
        let tables = world.running.values().map(|(_, table)| table);
        world.ledger.audit(tables, []).unwrap();
    }
}

impl World {
    fn apply(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["pool", pages, kind] => {
                assert!(self.running.is_empty() && self.reserved.is_empty(), "left over: {:?}", self.running.keys());
                let guarantee = match kind {
                    "cached" => Some(Guarantee::ByToken),
                    "prompts" => Some(Guarantee::ByOrigin),
                    _ => None,
                };
                self.ledger = PageLedger::new(pages.parse().unwrap(), guarantee);
                String::new()
            }
            ["start", name, text] => self.start(name, text, usize::MAX),
            ["start", name, text, prompt] => self.start(name, text, prompt.parse().unwrap()),
            ["reserve", name, text, end, ref headroom @ ..] => {
                self.reserve(name, text, end, headroom.first().unwrap_or(&"0"))
            }
            ["take_over", name] => {
                self.drop(name);
                let pages = self.revoked(name, usize::MAX);
                let tokens = pages.verified_prompt().to_vec();
                let table = pages.into_table();
                let answer = join(table.pages());
                self.running.insert(name.to_owned(), (tokens, table));
                answer
            }
            ["drop", name] => {
                self.drop(name);
                String::new()
            }
            ["revoked", name, verified] => {
                let pages = self.revoked(name, verified.parse().unwrap());
                self.ledger.insert(pages.verified_prompt(), pages.table());
                String::new()
            }
            ["abandon", name, verified] => {
                self.apply(&format!("drop {name}"));
                self.apply(&format!("revoked {name} {verified}"))
            }
            ["insert", name] => {
                let (tokens, table) = &self.running[name];
                self.ledger.insert(tokens, table);
                String::new()
            }
            ["end", name] => {
                self.running.remove(name).unwrap();
                String::new()
            }
            ["keep", text] => {
                let answer = self.start("", text, usize::MAX);
                let (tokens, table) = self.running.remove("").unwrap();
                self.ledger.insert(&tokens, &table);
                answer.split(" | ").last().unwrap_or_default().to_owned()
            }
            ["evict", count] => self.ledger.evict(count.parse().unwrap()).to_string(),
            ["forget", text, from] => {
                self.ledger.forget(&tokens(text), adapter(text), from.parse().unwrap()).to_string()
            }
            ["cached", text] => join(&self.ledger.cached_prefix(&tokens(text), adapter(text))),
            ["state"] => format!("{} / {}", self.ledger.pages_free(), self.ledger.pages_cached()),
            ["reserved"] => self.ledger.pages_reserved().to_string(),
            _ => panic!("not a command: {line}"),
        }
    }

    fn drop(&mut self, name: &str) {
        let reservation = self.reserved.remove(name).unwrap();
        let id = reservation.id();
        assert_eq!(self.ledger.next_dropped(), None);
        drop(reservation);
        assert_eq!(self.ledger.next_dropped(), Some(id));
        assert_eq!(self.ledger.next_dropped(), None, "once");
        self.dropped.insert(name.to_owned(), id);
    }

    fn revoked(&mut self, name: &str, verified: usize) -> ReceivedPages {
        let id = self.dropped.remove(name).unwrap();
        let pages = self.ledger.revoked(id, verified).unwrap();
        assert!(self.ledger.revoked(id, verified).is_none(), "once");
        pages
    }

    fn reserve(&mut self, name: &str, text: &str, end: &str, headroom: &str) -> String {
        let (prompt, adapter, end) = (tokens(text).into(), adapter(text), end.parse().unwrap());
        let id = ReservationId(self.next_reservation);
        self.next_reservation += 1;
        match self.ledger.reserve(id, prompt, adapter, end, headroom.parse().unwrap()) {
            Ok(reservation) => {
                let matched = reservation.matched_tokens();
                let answer = format!("{matched} matched, {} own", join(self.ledger.own_pages(&reservation)));
                self.reserved.insert(name.to_owned(), reservation);
                answer
            }
            Err(error) => format!("{error}{}", if error.is_final() { ", ever" } else { "" }),
        }
    }

    fn start(&mut self, name: &str, text: &str, prompt_tokens: usize) -> String {
        let (tokens, adapter) = (tokens(text), adapter(text));
        let mut table = self.ledger.match_prefix(&tokens, Origin { prompt_tokens, adapter });
        let shared = join(table.pages());
        if let Err(error) = self.ledger.grow(&mut table, tokens.len()) {
            return format!("out of pages: {error}");
        }
        let answer = format!("{shared} | {}", join(table.pages()));
        self.running.insert(name.to_owned(), (tokens, table));
        answer
    }
}

fn adapter(text: &str) -> Option<AdapterId> {
    text.split_once(':').map(|(adapter, _)| AdapterId(adapter.parse().unwrap()))
}

fn tokens(text: &str) -> Vec<TokenId> {
    let text = text.split_once(':').map_or(text, |(_, tokens)| tokens);
    let (pages, tail) = text.split_once('+').unwrap_or((text, "0"));
    let whole = pages.bytes().flat_map(|letter| std::iter::repeat_n(TokenId(letter.into()), PAGE_TOKENS));
    whole.chain(std::iter::repeat_n(TokenId(0), tail.parse().unwrap())).collect()
}

fn join(pages: &[PageId]) -> String {
    let mut text = String::new();
    for page in pages {
        write!(text, "{page} ").unwrap();
    }
    if text.is_empty() { "-".to_owned() } else { text.trim_end().to_owned() }
}
