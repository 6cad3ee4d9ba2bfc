//! Masks that another thread makes while the step that needs them runs, from the tokens before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use baton_backend::{MaskCell, MaskFiller, TokenMask};
use baton_core::{Choice, Fault, GenerateRequest, Retry, TokenId};
use baton_engine::{MaskMaker, MaskSource};
use baton_protocol::Engine;
use baton_text::{Tokenizer, Vocabulary};

use crate::fleet::{Mock, Setup, VOCAB, generate, mock, read, request};

/// The rule: every output has the same remainder by this as the sum of those before.
const GROUPS: u32 = 11;

fn follows(sum: u32, token: TokenId) -> bool {
    token.0 >= 5 && token.0 % GROUPS == sum % GROUPS
}

/// Requests with an odd id are bound by the rule.
struct Rule {
    mishap: Mishap,
}

/// What goes wrong at the sixth output.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    None,
    Dropped,
    Never,
    AllMasked,
}

struct Bound(Sender<Word>);

enum Word {
    Wanted(MaskFiller),
    Sampled(TokenId),
}

impl MaskMaker for Rule {
    fn masks_of(&mut self, request: &GenerateRequest, _: Choice, outputs: &[TokenId]) -> Option<Box<dyn MaskSource>> {
        let (source, words) = mpsc::channel();
        let (outputs, mishap) = (outputs.to_vec(), self.mishap);
        (request.id.0 % 2 == 1).then(|| {
            thread::spawn(move || make_masks(&words, &outputs, mishap));
            Box::new(Bound(source)) as _
        })
    }
}

impl MaskSource for Bound {
    fn next_cell(&mut self) -> MaskCell {
        let (filler, cell) = MaskCell::new();
        let _ = self.0.send(Word::Wanted(filler));
        cell
    }

    fn sampled(&mut self, token: TokenId) {
        let _ = self.0.send(Word::Sampled(token));
    }
}

/// Late, and not before all outputs in front of the wanted one are known.
fn make_masks(words: &Receiver<Word>, outputs: &[TokenId], mishap: Mishap) {
    let (mut sum, mut known, mut masked) =
        (outputs.iter().map(|token| token.0).sum::<u32>(), outputs.len(), outputs.len());
    let mut wanted = VecDeque::new();
    let mut kept = Vec::new();
    for word in words {
        match word {
            Word::Wanted(filler) => wanted.push_back(filler),
            Word::Sampled(token) => (sum, known) = (sum + token.0, known + 1),
        }
        if masked > known {
            continue;
        }
        let Some(filler) = wanted.pop_front() else { continue };
        thread::sleep(Duration::from_millis(1));
        match mishap {
            Mishap::Dropped if masked == 5 => drop(filler),
            Mishap::Never if masked == 5 => kept.push(filler),
            Mishap::AllMasked if masked == 5 => filler.fill(TokenMask::default()),
            _ => filler.fill((0..VOCAB).map(TokenId).filter(|&token| follows(sum, token)).collect()),
        }
        masked += 1;
    }
}

fn start(config: &str, kv_pages: usize, mishap: Mishap) -> Mock {
    Setup { config, kv_pages, masks: Some(Box::new(Rule { mishap })), ..Setup::default() }.start()
}

fn check(tokens: &[TokenId]) {
    let mut sum = 0;
    for token in tokens {
        assert!(follows(sum, *token), "{token} after a sum of {sum}");
        sum += token.0;
    }
}

#[tokio::test]
async fn what_is_sampled_obeys_masks_that_come_late() {
    let (one, free) = (start("", 400, Mishap::None), mock(""));
    let mut preemptions = 0;
    for config in ["", "steps-in-flight=2", "steps-in-flight=3", "tokens-per-step=4,steps-in-flight=2"] {
        // The small pool is not enough for all, which run side by side: a step takes its time.
        for kv_pages in [400, 16] {
            let mock = start(&format!("prefill-ms=10,decode-ms=1,{config}"), kv_pages, Mishap::None);
            let mut streams = Vec::new();
            for id in 0..6 {
                streams.push(mock.engine.start_generate(request(id, 60, 40), None).await.unwrap());
            }
            for (id, stream) in (0..).zip(streams) {
                let tokens = read(stream).await.unwrap();
                assert_eq!(tokens.len(), 40);
                if id % 2 == 1 {
                    check(&tokens);
                    assert_eq!(tokens, generate(&one, request(id, 60, 40)).await.unwrap(), "{config}");
                } else {
                    assert_eq!(tokens, generate(&free, request(id, 60, 40)).await.unwrap(), "{config}");
                }
            }
            let counters = mock.handle.report().counters;
            assert!(counters.preemptions == 0 || kv_pages == 16, "{config}: {counters:?}");
            preemptions += counters.preemptions;
            mock.handle.audit().await.unwrap().unwrap();
        }
    }
    // How many of the runs had streams that waited for pages depends on how soon the streams began.
    assert!(preemptions > 0);
}

#[tokio::test]
async fn a_resumed_stream_goes_on_under_its_masks() {
    let mock = start("steps-in-flight=2", 400, Mishap::None);
    let whole = generate(&mock, request(1, 60, 20)).await.unwrap();
    for accepted in [1, 10] {
        let rest = GenerateRequest { outputs: vec![whole[..accepted].to_vec()], ..request(1, 60, 20) };
        assert_eq!(generate(&mock, rest).await.unwrap(), whole[accepted..]);
    }
}

#[tokio::test]
async fn a_mask_that_does_not_come_fails_its_request_alone() {
    let cases = [
        (Mishap::Dropped, Fault::Engine, Retry::Elsewhere, "was not made in time"),
        (Mishap::Never, Fault::Engine, Retry::Elsewhere, "was not made in time"),
        (Mishap::AllMasked, Fault::Caller, Retry::Never, "all are masked"),
    ];
    for (mishap, whose, retry, message) in cases {
        for config in ["", "steps-in-flight=2"] {
            let mock = start(config, 400, mishap);
            let (bound, free) =
                futures_util::future::join(generate(&mock, request(1, 60, 40)), generate(&mock, request(2, 60, 40)))
                    .await;
            let (tokens, error) = bound.unwrap_err();
            assert_eq!((tokens.len(), error.fault, error.retry), (5, whose, retry), "{mishap:?}: {error}");
            assert!(error.message.contains(message), "{error}");
            check(&tokens);
            assert_eq!(free.unwrap().len(), 40);
            assert!(mock.handle.is_alive());
            mock.handle.audit().await.unwrap().unwrap();
        }
    }
}

/// Outputs may be tokens of lowercase letters and nothing else: known from the table of the vocabulary's bytes.
struct Lowercase(Arc<Vocabulary>);

impl Lowercase {
    fn allows(&self, token: TokenId) -> bool {
        let bytes = self.0.bytes(token);
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_lowercase)
    }
}

impl MaskMaker for Lowercase {
    fn masks_of(&mut self, _: &GenerateRequest, _: Choice, _: &[TokenId]) -> Option<Box<dyn MaskSource>> {
        Some(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl MaskSource for Lowercase {
    fn next_cell(&mut self) -> MaskCell {
        let ((filler, cell), table) = (MaskCell::new(), Self(Arc::clone(&self.0)));
        thread::spawn(move || filler.fill((0..VOCAB).map(TokenId).filter(|&token| table.allows(token)).collect()));
        cell
    }

    fn sampled(&mut self, _: TokenId) {}
}

#[tokio::test]
async fn masks_are_made_of_the_vocabularys_bytes() {
    let json = include_bytes!("../../../../models/storyteller-11m/tokenizer.json");
    let rule = Lowercase(Arc::clone(Tokenizer::from_json(json).unwrap().vocabulary()));
    let allowed = (0..VOCAB).filter(|&token| rule.allows(TokenId(token))).count();
    assert!((20..400).contains(&allowed), "{allowed} of {VOCAB} tokens");
    let masks: Box<dyn MaskMaker> = Box::new(Lowercase(Arc::clone(&rule.0)));
    let mock = Setup { config: "steps-in-flight=2", masks: Some(masks), ..Setup::default() }.start();
    let tokens = generate(&mock, request(1, 60, 40)).await.unwrap();
    assert!(tokens.len() == 40 && tokens.iter().all(|&token| rule.allows(token)), "{tokens:?}");
    assert!(!generate(&crate::fleet::mock(""), request(1, 60, 40)).await.unwrap().iter().all(|&t| rule.allows(t)));
}
