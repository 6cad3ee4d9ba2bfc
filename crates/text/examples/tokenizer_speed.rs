//! Encoding speed of tokenizer.json files beside the reference tokenizer, and whether both agree:
//!
//!     cargo run --release -p baton-text --example tokenizer_speed -- [--fuzz-mb N] TOKENIZER.json… [TEXT.txt…]
//!
//! One core, time on it (Linux: others may use the machine at once). The texts given, or a story of the bundled model's kind; then N megabytes of seeded oddities.

#![allow(clippy::expect_used, reason = "a tool for developers may panic")]

use std::time::{Duration, Instant};

use baton_text::{SpecialTokens, Tokenizer};

#[path = "../tests/reference/corpus.rs"]
mod corpus;

const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let fuzz_mb: u64 = match arguments.next_if_eq("--fuzz-mb") {
        Some(_) => arguments.next().and_then(|count| count.parse().ok()).expect("--fuzz-mb takes a number"),
        None => 0,
    };
    let (tokenizers, texts): (Vec<String>, Vec<String>) = arguments.partition(|path| path.ends_with(".json"));
    let mut texts: Vec<(String, String)> =
        texts.into_iter().map(|path| (path.clone(), std::fs::read_to_string(&path).expect("a UTF-8 file"))).collect();
    if texts.is_empty() {
        texts.push(("story".to_owned(), story()));
    }
    for path in tokenizers {
        check(&path, &texts, fuzz_mb);
    }
}

fn check(path: &str, texts: &[(String, String)], fuzz_mb: u64) {
    let json = std::fs::read(path).expect("the tokenizer.json");
    let begin = Instant::now();
    let ours = Tokenizer::from_json(&json).expect("a tokenizer");
    let loaded = begin.elapsed();
    let begin = Instant::now();
    let reference = tokenizers::Tokenizer::from_bytes(&json).expect("a tokenizer");
    println!("{path}: loaded in {loaded:.0?}, reference {:.0?}", begin.elapsed());

    for (name, text) in texts {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let begin = on_cpu();
            let tokens = ours.encode(text, SpecialTokens::Add).expect("tokens");
            times[0].push(on_cpu() - begin);
            let begin = on_cpu();
            let expected = reference.encode_fast(text.as_str(), true).expect("tokens");
            times[1].push(on_cpu() - begin);
            assert!(tokens.iter().map(|token| token.0).eq(expected.get_ids().iter().copied()), "{name} differs");
        }
        let [ours, reference] = times.map(|times| rate(text.len(), times));
        println!("  {name}: {:.1} MB, {ours} MB/s, reference {reference} MB/s", text.len() as f64 / 1e6);
    }

    let special: Vec<String> =
        reference.get_added_tokens_decoder().values().map(|token| token.content.clone()).collect();
    let (mut bytes, mut seed) = (0, 0);
    while bytes < fuzz_mb << 20 {
        let text = corpus::Corpus::new(seed, special.clone()).text(1 + seed % 400);
        let expected = reference.encode_fast(text.as_str(), true).expect("tokens");
        let tokens = ours.encode(&text, SpecialTokens::Add).expect("tokens");
        assert!(tokens.iter().map(|token| token.0).eq(expected.get_ids().iter().copied()), "seed {seed}: {text:?}");
        bytes += text.len() as u64;
        seed += 1;
    }
    if fuzz_mb > 0 {
        println!("  {seed} seeded texts, {fuzz_mb} MB: equal");
    }
}

/// Of this thread; the first figure of schedstat, in nanoseconds.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(stat.split(' ').next().and_then(|figure| figure.parse().ok()).expect("nanoseconds"))
}

/// Median and range.
fn rate(bytes: usize, mut times: Vec<Duration>) -> String {
    times.sort();
    let rate = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    format!("{:.1} ({:.1} – {:.1})", rate(times[times.len() / 2]), rate(times[times.len() - 1]), rate(times[0]))
}

/// Two megabytes of plain English, without a file.
fn story() -> String {
    include_str!("../../../README.md").repeat(1 + (2 << 20) / include_str!("../../../README.md").len())
}
