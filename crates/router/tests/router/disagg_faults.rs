//! Whatever dies between and during the three calls, the client's stream is the undisturbed one and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_core::{Retry, ServeError};
use baton_router::{Disagg, Resumed, Role};

use crate::disagg::{dispatcher, nothing_is_left};
use crate::scripted::{long_request, read, undisturbed};
use crate::wire::{OnGenerate, OnPrepRecv, OnRemoteSend, Script, Wire};
use crate::wired::Wired;

fn prep_recv(act: OnPrepRecv) -> Script {
    Script { prep_recv: [act].into(), ..Script::default() }
}

fn remote_send(act: OnRemoteSend) -> Script {
    Script { remote_send: [act].into(), ..Script::default() }
}

fn generate(act: OnGenerate) -> Script {
    Script { generate: [act].into(), ..Script::default() }
}

fn engine_error() -> ServeError {
    ServeError::engine("preempted")
}

fn busy() -> ServeError {
    ServeError::busy("full", 50)
}

/// A prompt that is larger than what D may ever reserve.
fn too_large() -> ServeError {
    ServeError { retry: Retry::Never, ..busy() }
}

fn draining() -> ServeError {
    ServeError { retry: Retry::Elsewhere, ..busy() }
}

struct Case {
    fault: &'static str,
    /// Of the two prefill and the two decode engines: by load the first ones are picked first.
    scripts: [Script; 4],
    /// Attempts after the first.
    resumed: Resumed,
    /// Reservations made in all: a new one for each attempt, not for each sender.
    reserved: usize,
    /// Prompt tokens that decode engines computed in all.
    computed: u64,
}

fn case(fault: &'static str, scripts: [Script; 4], resumed: Resumed, reserved: usize, computed: u64) -> Case {
    Case { fault, scripts, resumed, reserved, computed }
}

fn cases() -> Vec<Case> {
    let none = Script::default;
    let nothing = Resumed::default();
    let lost = Resumed { engine_lost: 1, ..nothing };
    vec![
        case("nothing", [none(), none(), none(), none()], nothing, 1, 1),
        case("P dies while sending", [remote_send(OnRemoteSend::Die), none(), none(), none()], nothing, 1, 1),
        case("P fails", [remote_send(OnRemoteSend::Fail(engine_error())), none(), none(), none()], nothing, 1, 1),
        case("P is full", [remote_send(OnRemoteSend::Fail(busy())), none(), none(), none()], nothing, 1, 1),
        case(
            "both P die: D computes",
            [remote_send(OnRemoteSend::Die), remote_send(OnRemoteSend::Die), none(), none()],
            nothing,
            1,
            100,
        ),
        case(
            "P cannot serve this request at all: D computes",
            [remote_send(OnRemoteSend::Fail(ServeError::caller("too long"))), none(), none(), none()],
            nothing,
            1,
            100,
        ),
        case(
            "blocks arrive damaged: D computes them",
            [remote_send(OnRemoteSend::Damage { verified: 64 }), none(), none(), none()],
            nothing,
            1,
            36,
        ),
        case("D dies during prep_recv", [none(), none(), prep_recv(OnPrepRecv::Die), none()], lost, 2, 1),
        case(
            "D has no room to receive: it computes",
            [none(), none(), prep_recv(OnPrepRecv::Fail(busy())), none()],
            nothing,
            1,
            100,
        ),
        case(
            "D will never have that much room: it computes",
            [none(), none(), prep_recv(OnPrepRecv::Fail(too_large())), none()],
            nothing,
            1,
            100,
        ),
        case(
            "D shuts down",
            [none(), none(), prep_recv(OnPrepRecv::Fail(draining())), none()],
            Resumed { draining: 1, ..nothing },
            2,
            1,
        ),
        case(
            "D never answers",
            [none(), none(), prep_recv(OnPrepRecv::Hang), none()],
            Resumed { failed: 1, ..nothing },
            2,
            1,
        ),
        case(
            "D refuses to start",
            [none(), none(), generate(OnGenerate::Refuse(busy())), none()],
            Resumed { busy: 1, ..nothing },
            2,
            1,
        ),
        case(
            "D dies while KV is on the way",
            [none(), none(), generate(OnGenerate::DieBeforePrompt), none()],
            lost,
            2,
            1,
        ),
        case("D dies before its first token", [none(), none(), generate(OnGenerate::DieAfter(0)), none()], lost, 2, 2),
        case("D dies in mid-stream", [none(), none(), generate(OnGenerate::DieAfter(3)), none()], lost, 2, 2),
        case(
            "D fails in mid-stream",
            [none(), none(), generate(OnGenerate::FailAfter(3, engine_error())), none()],
            Resumed { failed: 1, ..nothing },
            2,
            2,
        ),
        case(
            "P dies while sending, then D in mid-stream",
            [remote_send(OnRemoteSend::Die), none(), generate(OnGenerate::DieAfter(2)), none()],
            lost,
            2,
            2,
        ),
        case(
            "D dies while P is stuck",
            [remote_send(OnRemoteSend::Hang), none(), generate(OnGenerate::DieBeforePrompt), none()],
            lost,
            2,
            1,
        ),
        case(
            "both D die: P serves",
            [none(), none(), generate(OnGenerate::DieAfter(1)), generate(OnGenerate::DieAfter(2))],
            Resumed { engine_lost: 2, ..nothing },
            2,
            2,
        ),
        case(
            "all but one P die",
            [
                remote_send(OnRemoteSend::Die),
                none(),
                generate(OnGenerate::DieAfter(1)),
                generate(OnGenerate::DieBeforePrompt),
            ],
            Resumed { engine_lost: 2, ..nothing },
            2,
            1,
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_invisible_to_the_client() {
    for choices in [1, 2] {
        for Case { fault, scripts, resumed, reserved, computed } in cases() {
            let wire: Arc<Wire> = Arc::default();
            let [p0, p1, d0, d1] = &scripts.map(|script| Arc::new(Wired::new(&wire).with(script)));
            let members = [(Role::Prefill, p0), (Role::Prefill, p1), (Role::Decode, d0), (Role::Decode, d1)];
            let dispatcher = dispatcher(&members, Disagg::new(0.0));
            let stream = dispatcher.generate(long_request(100, choices, 6)).await.unwrap();
            let (outputs, prompts, failure) = read(stream, choices).await;
            assert_eq!((prompts, failure), (1, None), "{fault}");
            assert_eq!(outputs, undisturbed(choices as u32, 6), "{fault}, n = {choices}");
            assert_eq!(dispatcher.counters().resumed, resumed, "{fault}");
            let count = |engine: &Arc<Wired>| engine.reserved.load(Ordering::Relaxed);
            assert_eq!(count(d0) + count(d1), reserved, "{fault}");
            let total = |engine: &Arc<Wired>| engine.computed_tokens.load(Ordering::Relaxed);
            assert_eq!(total(d0) + total(d1), computed, "{fault}");
            nothing_is_left(&dispatcher, &[p0, p1, d0, d1], fault).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_sender_is_replaced_for_the_same_reservation() {
    let wire = Arc::default();
    let p0 = Arc::new(Wired::new(&wire).with(remote_send(OnRemoteSend::Die)));
    let (p1, d) = (Arc::new(Wired::new(&wire)), Arc::new(Wired::new(&wire).with_cached(40)));
    let dispatcher = dispatcher(&[(Role::Prefill, &p0), (Role::Prefill, &p1), (Role::Decode, &d)], Disagg::new(0.0));
    read(dispatcher.generate(long_request(100, 1, 3)).await.unwrap(), 1).await;
    assert_eq!(*p0.sends.lock().unwrap(), *p1.sends.lock().unwrap());
    assert_eq!((p1.sends(), d.reserved.load(Ordering::Relaxed), d.starts()), (1, 1, 1));
    let counters = dispatcher.counters();
    assert_eq!((counters.handoffs, counters.handoffs_failed), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_dies_without_anyone_asking_it_is_not_waited_for() {
    let wire = Arc::default();
    let p = Arc::new(Wired::new(&wire).with(remote_send(OnRemoteSend::Hang)));
    let d = Arc::new(Wired::new(&wire));
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(0.0));
    let stream = dispatcher.generate(long_request(100, 1, 3)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    p.die();
    assert_eq!(read(stream, 1).await.0, undisturbed(1, 3));
    assert_eq!(d.computed_tokens.load(Ordering::Relaxed), 100);
    // With no prefill engine left the next request is not handed over at all.
    read(dispatcher.generate(long_request(100, 1, 3)).await.unwrap(), 1).await;
    assert_eq!((d.reserved.load(Ordering::Relaxed), d.starts()), (1, 2));
    nothing_is_left(&dispatcher, &[&p, &d], "P died").await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_s_fault_is_reported_once() {
    let wire = Arc::default();
    let error = ServeError::caller("the prompt is too long").about("prompt");
    let p = Arc::new(Wired::new(&wire));
    let d = Arc::new(Wired::new(&wire).with(prep_recv(OnPrepRecv::Fail(error.clone()))));
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(0.0));
    let (_, _, failure) = read(dispatcher.generate(long_request(100, 1, 3)).await.unwrap(), 1).await;
    assert_eq!((failure, p.sends(), d.starts()), (Some(error), 0, 0));
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_whatever_role_fails() {
    let wire = Arc::default();
    let p = Arc::new(Wired::new(&wire));
    let failing = Script {
        generate: vec![OnGenerate::FailAfter(0, engine_error()); 99].into(),
        remote_send: vec![OnRemoteSend::Fail(engine_error()); 99].into(),
        ..Script::default()
    };
    let d = Arc::new(Wired::new(&wire).with(failing));
    let dispatcher = dispatcher(&[(Role::Prefill, &p), (Role::Decode, &d)], Disagg::new(0.0));
    let (_, _, failure) = read(dispatcher.generate(long_request(100, 2, 3)).await.unwrap(), 2).await;
    assert_eq!(failure.unwrap().message, "preempted (after 16 attempts)");
    assert_eq!((d.starts(), p.starts()), (16, 0), "a prefill engine serves only when no decode engine is there");
    nothing_is_left(&dispatcher, &[&p, &d], "given up").await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_where_the_bits_may_differ_is_counted() {
    let wire = Arc::default();
    let d0 = Arc::new(Wired::new(&wire).with(generate(OnGenerate::DieAfter(2))));
    let others = [Wired::new(&wire).with_numerics("gpu"), Wired::new(&wire)].map(Arc::new);
    let members = [(Role::Decode, &d0), (Role::Decode, &others[0]), (Role::Decode, &others[1])];
    let exact = dispatcher(&members, Disagg::new(0.0));
    assert_eq!(read(exact.generate(long_request(10, 1, 4)).await.unwrap(), 1).await.0, undisturbed(1, 4));
    assert_eq!((exact.counters().resumed.numerics_changed, others[1].starts()), (0, 1), "the same numerics first");

    let d0 = Arc::new(Wired::new(&wire).with(generate(OnGenerate::DieAfter(2))));
    let mixed = dispatcher(&[(Role::Decode, &d0), (Role::Decode, &others[0])], Disagg::new(0.0));
    assert_eq!(read(mixed.generate(long_request(10, 1, 4)).await.unwrap(), 1).await.0, undisturbed(1, 4));
    assert_eq!(mixed.counters().resumed, Resumed { engine_lost: 1, numerics_changed: 1, ..Resumed::default() });

    // Nothing was generated before: nothing can differ.
    let d0 = Arc::new(Wired::new(&wire).with(generate(OnGenerate::DieAfter(0))));
    let early = dispatcher(&[(Role::Decode, &d0), (Role::Decode, &others[0])], Disagg::new(0.0));
    read(early.generate(long_request(10, 1, 4)).await.unwrap(), 1).await;
    assert_eq!(early.counters().resumed, Resumed { engine_lost: 1, ..Resumed::default() });
}
