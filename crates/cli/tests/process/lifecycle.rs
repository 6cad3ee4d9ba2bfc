//! All ways to end a deployment while a stream is open.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::baton::{Baton, PATIENCE, eventually, is_running, send};
use crate::http::{Events, get, post};

/// A completion long enough to be interrupted in the middle.
fn story() -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": 1800, "temperature": 0.8, "seed": 5, "ignore_eos": true, "stream": true})
}

fn open_story(baton: &Baton) -> (Events, String) {
    let mut events = Events::open(baton.address, "/v1/completions", &story());
    let begun = events.next_text().unwrap().expect("no text at all");
    (events, begun)
}

/// The number of streams that continued after their engine had ended.
fn resumed(baton: &Baton) -> u32 {
    let metrics = get(baton.address, "/metrics").1;
    let total = metrics.lines().find_map(|line| line.strip_prefix("baton_resumed_total{reason=\"engine_lost\"} "));
    total.and_then(|total| total.parse().ok()).unwrap_or_else(|| panic!("no such metric: {metrics}"))
}

fn undisturbed(baton: &Baton) -> String {
    Events::open(baton.address, "/v1/completions", &story()).rest().unwrap()
}

#[test]
fn a_killed_parent_leaves_no_child_behind() {
    let mut baton = Baton::serve(&[]);
    let engines = baton.engines();
    assert_eq!(engines.len(), 2);
    baton.signal("-KILL");
    baton.wait();
    eventually("the end of all engines", || engines.iter().all(|pid| !is_running(*pid)).then_some(()));
}

#[test]
fn sigterm_finishes_what_is_open_and_takes_nothing_new() {
    let mut baton = Baton::serve(&["--drain-timeout", "600"]);
    let expected = undisturbed(&baton);
    let engines = baton.engines();
    let (mut events, begun) = open_story(&baton);
    baton.signal("-TERM");
    eventually("the listener to close", || TcpStream::connect(baton.address).is_err().then_some(()));
    assert_eq!(begun + &events.rest().unwrap(), expected);
    assert_eq!(baton.wait().code(), Some(0));
    assert!(engines.iter().all(|pid| !is_running(*pid)));
}

#[test]
fn a_second_signal_stops_at_once() {
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < PATIENCE {
        let mut baton = Baton::serve(&[]);
        let engines = baton.engines();
        let (mut events, _) = open_story(&baton);
        engines.iter().for_each(|engine| send("-STOP", *engine));
        baton.signal("-INT");
        eventually("draining", || baton.log().contains("finishing open requests").then_some(()));
        let second = Instant::now();
        baton.signal("-INT");
        baton.wait();
        took.push(second.elapsed());
        assert!(events.rest().is_err(), "the stream should have been cut off");
        eventually("the end of all engines", || engines.iter().all(|pid| !is_running(*pid)).then_some(()));
        // Well below the time that an engine gets to stop by itself. A busy machine may take longer, but not in every try.
        if took.last() < Some(&Duration::from_millis(2500)) {
            return;
        }
    }
    panic!("took {took:?}");
}

#[test]
fn draining_is_bounded() {
    let mut baton = Baton::serve(&["--drain-timeout", "1"]);
    let _open = open_story(&baton);
    baton.engines().into_iter().for_each(|engine| send("-STOP", engine));
    baton.signal("-TERM");
    assert_eq!(baton.wait().code(), Some(0));
    assert!(baton.log().contains("requests are still open after 1 s: cut off"), "{}", baton.log());
}

#[test]
fn a_crashed_engine_is_restarted_and_its_streams_go_on() {
    let baton = Baton::serve(&["--prefill", "0"]);
    let expected = undisturbed(&baton);
    let [engine] = baton.engines()[..] else { panic!("not one engine") };
    let (mut events, begun) = open_story(&baton);
    send("-KILL", engine);
    assert_eq!(begun + &events.rest().unwrap(), expected);
    assert!(resumed(&baton) > 0, "the stream had ended before its engine did");
    let restarted = eventually("another engine", || baton.engines().first().copied());
    assert_ne!(restarted, engine);
    let log = baton.log();
    assert!(log.contains("decode-0 | engine died (signal: 9 (SIGKILL))"), "{log}");
    assert!(log.contains("decode-0 | engine is ready again"), "{log}");
    let (status, _) = post(baton.address, "/v1/completions", &json!({"prompt": "Hi", "max_tokens": 1}));
    assert_eq!(status, 200);
}

#[test]
fn with_two_engines_the_other_one_takes_over() {
    let baton = Baton::serve(&["--prefill", "0", "--decode", "2"]);
    let expected = undisturbed(&baton);
    let streams: Vec<_> = (0..4).map(|_| open_story(&baton)).collect();
    send("-KILL", baton.engines()[0]);
    for (mut events, begun) in streams {
        assert_eq!(begun + &events.rest().unwrap(), expected);
    }
    assert!(resumed(&baton) > 0, "no stream was on the engine that died");
}

#[test]
fn a_signal_to_every_process_still_drains() {
    let mut baton = Baton::serve(&["--drain-timeout", "600"]);
    let expected = undisturbed(&baton);
    let (mut events, begun) = open_story(&baton);
    baton.engines().into_iter().for_each(|engine| send("-TERM", engine));
    baton.signal("-TERM");
    assert_eq!(begun + &events.rest().unwrap(), expected);
    assert_eq!(baton.wait().code(), Some(0));
    assert!(!baton.log().contains("engine died"), "{}", baton.log());
}
