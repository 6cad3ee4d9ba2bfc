//! Who computes what, when nothing goes wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_core::{EngineLoad, TokenRange};
use baton_protocol::Engine;
use baton_router::{ContextMigration, Disagg, DispatchConfig, Dispatcher, Fleet, InFlight, Role, Strategy};
use tokio::time::sleep;

use crate::custom_strategy::LongPromptsApart;
use crate::scripted::{long_request, read, undisturbed};
use crate::wire::{MS, OnRemoteSend, Script, Wire};
use crate::wired::Wired;

pub(crate) fn dispatcher(engines: &[(Role, &Arc<Wired>)], strategy: impl Strategy + 'static) -> Dispatcher {
    let named = engines.iter().enumerate().map(|(index, (role, engine))| {
        let engine: Arc<dyn Engine> = Arc::clone(engine) as _;
        (format!("engine-{index}"), *role, engine)
    });
    Dispatcher::new(Arc::new(Fleet::of_ready(named)), Arc::new(strategy), DispatchConfig::default())
}

pub(crate) async fn nothing_is_left(dispatcher: &Dispatcher, engines: &[&Arc<Wired>], case: &str) {
    // Aborts are noticed by tasks.
    sleep(MS(1)).await;
    for (status, engine) in dispatcher.fleet_status().iter().zip(engines) {
        let name = &status.name;
        assert_eq!(status.in_flight, InFlight::default(), "load of {name}, {case}");
        assert_eq!(engine.open_reservations(), 0, "reservations of {name}, {case}");
        assert_eq!(engine.open_sends.load(Ordering::Relaxed), 0, "sends of {name}, {case}");
    }
    assert_eq!(dispatcher.requests_in_flight(), 0, "{case}");
}

#[tokio::test(start_paused = true)]
async fn the_prompt_is_split_between_prefill_and_decode() {
    let cases = [
        // (factor, prompt tokens, cached on D, sent by P, computed by D)
        (0.0, 100, 0, Some((0, 99)), 1),
        (0.0, 100, 64, Some((64, 99)), 1),
        (0.0, 97, 96, None, 1),
        (0.0, 100, 96, Some((96, 99)), 1),
        (0.0, 2, 0, Some((0, 1)), 1),
        (0.0, 1, 0, None, 1),
        (0.1, 100, 0, Some((0, 90)), 10),
        (0.5, 100, 0, Some((0, 50)), 50),
        (0.5, 100, 32, Some((32, 50)), 50),
        (0.5, 128, 96, None, 64),
        (0.9, 100, 0, Some((0, 9)), 91),
        (1.0, 100, 0, None, 100),
    ];
    for (factor, tokens, cached, sent, computed) in cases {
        for choices in [1, 2] {
            let case = format!("balance {factor}, {tokens} tokens, {cached} cached, n = {choices}");
            let wire = Arc::default();
            let (p, d) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire).with_cached(cached)));
            let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(factor));
            let stream = dispatcher.generate(long_request(tokens, choices, 3)).await.unwrap();
            let (outputs, prompts, failure) = read(stream, choices).await;
            assert_eq!((outputs, prompts, failure), (undisturbed(choices as u32, 3), 1, None), "{case}");
            let sent = sent.map(|(begin, end)| TokenRange::new(begin, end).unwrap());
            assert_eq!(p.sends.lock().unwrap().first().copied(), sent, "{case}");
            assert_eq!((p.starts(), d.starts()), (0, 1), "{case}");
            assert_eq!(d.computed_tokens.load(Ordering::Relaxed), computed, "{case}");
            nothing_is_left(&dispatcher, &[&p, &d], &case).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_starts_while_its_kv_is_on_the_way() {
    let wire = Arc::default();
    let p = Wired::new(&wire).with(Script { remote_send: [OnRemoteSend::Hang].into(), ..Script::default() });
    let (p, d) = (Arc::new(p), Arc::new(Wired::new(&wire)));
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(0.0));
    let stream = dispatcher.generate(long_request(100, 2, 3)).await.unwrap();
    sleep(MS(2)).await;
    assert_eq!((p.sends(), d.starts()), (1, 1));
    let loads: Vec<_> = dispatcher.fleet_status().iter().map(|engine| engine.in_flight).collect();
    assert_eq!(loads, [InFlight { sequences: 0, prefill_tokens: 99 }, InFlight { sequences: 2, prefill_tokens: 1 },]);
    assert_eq!((d.open_reservations(), p.open_sends.load(Ordering::Relaxed)), (1, 1));
    // A client that leaves now takes all of it back.
    drop(stream);
    nothing_is_left(&dispatcher, &[&p, &d], "the client left").await;
}

#[tokio::test(start_paused = true)]
async fn log_probabilities_of_the_prompt_are_computed_where_it_is_generated() {
    let wire = Arc::default();
    let (p, d) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire)));
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(0.0));
    let mut request = long_request(100, 1, 3);
    request.prompt_logprobs = Some(1);
    read(dispatcher.generate(request).await.unwrap(), 1).await;
    assert_eq!((p.sends(), d.starts(), d.computed_tokens.load(Ordering::Relaxed)), (0, 1, 100));
}

#[tokio::test(start_paused = true)]
async fn the_prefill_engine_is_the_one_that_is_done_first_with_what_it_holds() {
    let wire = Arc::default();
    let engines = [(); 3].map(|()| Arc::new(Wired::new(&wire)));
    let [p, q, d] = &engines;
    let roles = [(Role::Prefill, p), (Role::Prefill, q), (Role::Decode, d)];
    let dispatcher = dispatcher(&roles, Disagg::new(0.0));
    let request = || long_request(1000, 1, 1);
    q.report_cached(&request().prompt, 20);
    let senders = || [p.sends(), q.sends()];

    // It would compute 360 tokens, the other one 1000.
    let first = dispatcher.generate(request()).await.unwrap();
    sleep(MS(2)).await;
    assert_eq!(senders(), [0, 1]);
    assert_eq!(
        dispatcher.fleet_status()[1].in_flight.prefill_tokens,
        359,
        "without the last token and the cached ones"
    );
    // 359 more before it begins: still less.
    let second = dispatcher.generate(request()).await.unwrap();
    sleep(MS(2)).await;
    assert_eq!(senders(), [0, 2]);
    let third = dispatcher.generate(request()).await.unwrap();
    sleep(MS(2)).await;
    assert_eq!(senders(), [1, 2], "718 before it begins are too many");
    for stream in [first, second, third] {
        read(stream, 1).await;
    }
    nothing_is_left(&dispatcher, &[p, q, d], "cached prefixes").await;
}

/// Who sends and who generates, by engine.
fn work(engines: &[Arc<Wired>]) -> Vec<(usize, usize)> {
    engines.iter().map(|engine| (engine.sends(), engine.starts())).collect()
}

#[tokio::test(start_paused = true)]
async fn roles_decide_who_does_what() {
    use Role::{Decode, Mixed, Prefill};
    let cases = [
        (vec![Prefill, Decode], vec![(2, 0), (0, 2)]),
        (vec![Prefill, Prefill, Decode, Decode], vec![(1, 0), (1, 0), (0, 1), (0, 1)]),
        (vec![Mixed, Mixed], vec![(1, 1), (1, 1)]),
        // Alone it can only do all itself.
        (vec![Mixed], vec![(0, 2)]),
        (vec![Decode, Decode], vec![(0, 1), (0, 1)]),
        (vec![Prefill, Prefill], vec![(0, 1), (0, 1)]),
        // The mixed engine decodes the first request; for the second it has less to prefill than the prefill engine.
        (vec![Prefill, Mixed, Decode], vec![(1, 0), (1, 1), (0, 1)]),
    ];
    for (roles, expected) in cases {
        let wire = Arc::default();
        let engines: Vec<_> = roles.iter().map(|_| Arc::new(Wired::new(&wire))).collect();
        let members: Vec<_> = roles.iter().copied().zip(&engines).collect();
        let dispatcher = dispatcher(&members, Disagg::new(0.0));
        let streams = [(); 2].map(|()| dispatcher.generate(long_request(100, 1, 3)));
        let [first, second] = streams.map(|stream| async { read(stream.await.unwrap(), 1).await });
        let (first, second) = tokio::join!(first, second);
        assert_eq!((&first.0, &second.0), (&undisturbed(1, 3), &undisturbed(1, 3)), "{roles:?}");
        assert_eq!(work(&engines), expected, "{roles:?}");
        nothing_is_left(&dispatcher, &engines.iter().collect::<Vec<_>>(), &format!("{roles:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn prefill_engines_are_compared_by_tokens_and_decode_engines_by_sequences() {
    let wire = Arc::default();
    let engines: [_; 4] = std::array::from_fn(|_| Arc::new(Wired::new(&wire)));
    let [p0, p1, d0, d1] = &engines;
    *p0.load.lock().unwrap() = EngineLoad { pending_prefill_tokens: 150, ..EngineLoad::default() };
    *d0.load.lock().unwrap() = EngineLoad { running: 3, ..EngineLoad::default() };
    let members = [(Role::Prefill, p0), (Role::Prefill, p1), (Role::Decode, d0), (Role::Decode, d1)];
    let dispatcher = dispatcher(&members, Disagg::new(0.0));
    // Tokens before each: 150 0 · 150 101 · 150 151 · 201 151.  Sequences: 3 0 · 3 2 · 3 3 · 4 3.
    let mut streams = Vec::new();
    for (tokens, choices) in [(102, 2), (51, 1), (52, 1), (21, 1)] {
        streams.push(dispatcher.generate(long_request(tokens, choices, 3)).await.unwrap());
        sleep(MS(2)).await;
    }
    assert_eq!(work(&engines), [(1, 0), (3, 0), (0, 1), (0, 3)]);
    for (stream, choices) in streams.into_iter().zip([2, 1, 1, 1]) {
        assert_eq!(read(stream, choices).await.0, undisturbed(choices as u32, 3));
    }
    nothing_is_left(&dispatcher, &engines.each_ref(), "all served").await;
}

#[tokio::test(start_paused = true)]
async fn engines_with_other_numerics_are_not_paired() {
    let wire: Arc<Wire> = Arc::default();
    let other = Arc::new(Wired::new(&wire).with_numerics("gpu"));
    let (same, d) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire)));
    let paired = dispatcher(&[(Role::Prefill, &other), (Role::Prefill, &same), (Role::Decode, &d)], Disagg::new(0.0));
    read(paired.generate(long_request(100, 1, 3)).await.unwrap(), 1).await;
    assert_eq!((other.sends(), same.sends(), d.starts()), (0, 1, 1));
    let alone = dispatcher(&[(Role::Prefill, &other), (Role::Decode, &d)], Disagg::new(0.0));
    read(alone.generate(long_request(100, 1, 3)).await.unwrap(), 1).await;
    assert_eq!((other.sends(), d.starts(), d.computed_tokens.load(Ordering::Relaxed)), (0, 2, 1 + 100));
}

#[tokio::test(start_paused = true)]
async fn routers_that_share_engines_do_not_disturb_each_other() {
    let wire = Arc::default();
    let engines: [_; 4] = std::array::from_fn(|_| Arc::new(Wired::new(&wire)));
    let [p0, p1, d0, d1] = &engines;
    let members = [(Role::Prefill, p0), (Role::Prefill, p1), (Role::Decode, d0), (Role::Decode, d1)];
    let routers = [dispatcher(&members, Disagg::new(0.0)), dispatcher(&members, Disagg::new(0.5))];
    let mut streams = Vec::new();
    for _ in 0..4 {
        for router in &routers {
            streams.push(router.generate(long_request(100, 2, 5)).await.unwrap());
        }
    }
    for stream in streams {
        assert_eq!(read(stream, 2).await.0, undisturbed(2, 5));
    }
    for router in &routers {
        nothing_is_left(router, &engines.each_ref(), "all served").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategy_of_one_s_own_composes_the_same_calls() {
    let wire = Arc::default();
    let engines: [_; 2] = std::array::from_fn(|_| Arc::new(Wired::new(&wire)));
    let members = engines.each_ref().map(|engine| (Role::Mixed, engine));
    let dispatcher = dispatcher(&members, LongPromptsApart { long_tokens: 50 });
    for (tokens, expected) in [(49, [(0, 1), (0, 0)]), (50, [(0, 2), (1, 0)])] {
        let (outputs, ..) = read(dispatcher.generate(long_request(tokens, 2, 3)).await.unwrap(), 2).await;
        assert_eq!(outputs, undisturbed(2, 3));
        assert_eq!(work(&engines), expected, "{tokens} tokens");
    }
    nothing_is_left(&dispatcher, &engines.each_ref(), "all served").await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_leaves_a_busy_engine_with_its_kv() {
    // Pages that its engine and the other hold, sequences there, what is sent, what the other computes itself.
    let cases = [
        (5, 0, 3, Some((0, 160)), 40),
        (5, 2, 3, Some((64, 160)), 40),
        (5, 4, 3, None, 72),
        (1, 0, 3, None, 200),
        (5, 0, 2, None, 0),
    ];
    for (held, held_there, sequences, sent, computed) in cases {
        let case = format!("{held} and {held_there} pages, {sequences} sequences");
        let wire = Arc::default();
        let (home, other) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire).with_cached(32 * held_there)));
        *home.load.lock().unwrap() = EngineLoad { running: sequences, ..EngineLoad::default() };
        let dispatcher = dispatcher(&[(Role::Mixed, &home), (Role::Mixed, &other)], ContextMigration::new(2));
        let request = long_request(200, 1, 3);
        home.report_cached(&request.prompt, held as usize);
        other.report_cached(&request.prompt, held_there as usize);
        let (outputs, prompts, failure) = read(dispatcher.generate(request).await.unwrap(), 1).await;
        assert_eq!((outputs, prompts, failure), (undisturbed(1, 3), 1, None), "{case}");
        let sent = sent.map(|(begin, end)| TokenRange::new(begin, end).unwrap());
        assert_eq!(home.sends.lock().unwrap().first().copied(), sent, "{case}");
        assert_eq!(other.computed_tokens.load(Ordering::Relaxed), computed, "{case}");
        nothing_is_left(&dispatcher, &[&home, &other], &case).await;
    }
}
