//! `auto` on engines that hand over: where requests go, what it says of them, and when roles move.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_core::{EngineLoad, ServeError};
use baton_router::{Auto, Dispatcher, Placement, Role};
use tokio::time::sleep;

use crate::disagg::{dispatcher, nothing_is_left};
use crate::scripted::{long_request, read, undisturbed};
use crate::wire::{MS, OnGenerate, OnPrepRecv, Script};
use crate::wired::Wired;

fn auto() -> Auto {
    Auto::new(0.0, 0.0, true)
}

/// It reports this many running sequences, and free pages.
fn runs(engine: &Wired, sequences: u32) {
    let pages = EngineLoad { pages_total: 10_000, pages_free: 9000, ..EngineLoad::default() };
    *engine.load.lock().unwrap() = EngineLoad { running: sequences, ..pages };
}

fn roles(dispatcher: &Dispatcher) -> Vec<Role> {
    dispatcher.fleet_status().iter().map(|engine| engine.role).collect()
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_explained_and_compared_with_what_happens() {
    let wire = Arc::default();
    let engines = [(); 2].map(|()| Arc::new(Wired::new(&wire)));
    let [p, d] = &engines;
    runs(d, 20);
    let dispatcher = dispatcher(&[(Role::Prefill, p), (Role::Decode, d)], auto());
    let (stream, route) = dispatcher.dispatch(long_request(4000, 1, 5)).await.unwrap();
    assert_eq!(read(stream, 1).await, (undisturbed(1, 5), 1, None));

    let decision = route.decision().unwrap();
    let hand_off = Placement::HandOff { prefill: "engine-0".into(), decode: "engine-1".into(), end: 3999 };
    assert_eq!((&decision.chosen.placement, decision.strategy.as_str()), (&hand_off, "auto"));
    let whole = Placement::Whole { engine: "engine-1".into() };
    assert!(decision.alternatives.iter().any(|other| other.placement == whole), "it was compared with one engine");
    assert!(decision.chosen.expected.is_some() && decision.alternatives.iter().all(|other| other.expected.is_some()));
    // 1 ms for the reservation, 10 ms for the KV, 1 ms for each token.
    let observed = decision.observed();
    assert_eq!((observed.ttft, observed.total, observed.tokens), (Some(MS(12)), Some(MS(16)), 5));
    assert!(decision.ttft_error().is_some());
    assert!(Arc::ptr_eq(&dispatcher.decisions()[0], &decision));
    nothing_is_left(&dispatcher, &[p, d], "explained").await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_that_finds_no_room_is_shown_as_what_became_of_it() {
    let wire = Arc::default();
    let full = Script { prep_recv: [OnPrepRecv::Fail(ServeError::busy("full", 1))].into(), ..Script::default() };
    let (p, d) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire).with(full)));
    runs(&d, 20);
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], auto());
    for (whole, sends) in [(true, 0), (false, 1)] {
        let (stream, route) = dispatcher.dispatch(long_request(4000, 1, 5)).await.unwrap();
        assert_eq!(read(stream, 1).await, (undisturbed(1, 5), 1, None));
        let chosen = &route.decision().unwrap().chosen;
        assert_eq!((matches!(chosen.placement, Placement::Whole { .. }), chosen.expected.is_none()), (whole, whole));
        assert_eq!(p.sends(), sends);
    }
}

/// All are placed before any engine has reported one of them.
#[tokio::test(start_paused = true)]
async fn requests_that_come_at_once_are_spread() {
    let wire = Arc::default();
    let engines = [(); 4].map(|()| Arc::new(Wired::new(&wire)));
    let [p, q, c, d] = &engines;
    [c, d].into_iter().for_each(|engine| runs(engine, 20));
    let dispatcher =
        dispatcher(&[(Role::Prefill, p), (Role::Prefill, q), (Role::Decode, c), (Role::Decode, d)], auto());
    let mut streams = Vec::new();
    for _ in 0..12 {
        streams.push(dispatcher.generate(long_request(3000, 1, 2)).await.unwrap());
    }
    for stream in streams {
        assert_eq!(read(stream, 1).await.2, None);
    }
    assert_eq!((p.sends(), q.sends()), (6, 6));
    assert_eq!((c.starts(), d.starts()), (6, 6));
    nothing_is_left(&dispatcher, &[p, q, c, d], "at once").await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_failed_a_request_does_not_get_it_again() {
    let wire = Arc::default();
    let failure = ServeError::engine("out of order");
    for act in [OnGenerate::DieAfter(2), OnGenerate::FailAfter(2, failure.clone()), OnGenerate::Refuse(failure)] {
        let case = format!("{act:?}");
        let fails = Wired::new(&wire).with(Script { generate: [act].into(), ..Script::default() });
        let (fails, works) = (Arc::new(fails), Arc::new(Wired::new(&wire)));
        runs(&fails, 1);
        runs(&works, 40);
        let dispatcher = dispatcher(&[(Role::Mixed, &fails), (Role::Mixed, &works)], auto());
        let (stream, route) = dispatcher.dispatch(long_request(40, 1, 5)).await.unwrap();
        assert_eq!(read(stream, 1).await, (undisturbed(1, 5), 1, None), "{case}");
        assert_eq!((fails.starts(), works.starts()), (1, 1), "{case}");
        assert_eq!(
            route.decision().unwrap().chosen.placement,
            Placement::Whole { engine: "engine-1".into() },
            "{case}"
        );
    }
}

/// A request each 200 ms for `seconds`, while the first engine computes prompts for so much of the time.
async fn traffic(dispatcher: &Dispatcher, prefill: &[&Arc<Wired>], share: f64, seconds: u64) {
    for _ in 0..seconds * 5 {
        read(dispatcher.generate(long_request(100, 1, 1)).await.unwrap(), 1).await;
        sleep(MS(200)).await;
        for engine in prefill {
            engine.prefill_us.fetch_add((share * 212_000.0) as u64, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn roles_move_with_the_traffic_unless_they_are_to_stay() {
    use Role::{Decode, Prefill};
    let wire = Arc::default();
    for (moves_roles, after) in [(true, [Prefill, Prefill, Decode]), (false, [Prefill, Decode, Decode])] {
        let engines = [(); 3].map(|()| Arc::new(Wired::new(&wire)));
        let [p, c, d] = &engines;
        runs(c, 3);
        runs(d, 4);
        let strategy = Auto::new(0.0, 0.0, moves_roles);
        let dispatcher = dispatcher(&[(Prefill, p), (Decode, c), (Decode, d)], strategy);
        traffic(&dispatcher, &[p], 0.5, 40).await;
        assert_eq!(roles(&dispatcher), [Prefill, Decode, Decode], "it keeps up");
        traffic(&dispatcher, &[p], 1.0, 60).await;
        assert_eq!(roles(&dispatcher), after, "it does not");
        if moves_roles {
            [c, d].into_iter().for_each(|engine| runs(engine, 100));
            traffic(&dispatcher, &[p], 0.1, 60).await;
            let prefill = roles(&dispatcher).into_iter().filter(|role| *role == Prefill).count();
            assert_eq!(prefill, 1, "the answers need it more");
        }
        nothing_is_left(&dispatcher, &[p, c, d], "roles").await;
    }
}
