//! Engines that stop without an end: no process dies, no connection breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_protocol::Engine;
use baton_router::{
    Disagg, DispatchConfig, Dispatcher, EngineId, EngineState, Fleet, HeartbeatMonitor, Role, RoundRobin, TokioRuntime,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::custom_strategy::LongPromptsApart;
use crate::scripted::{Act, Scripted, fleet, long_request, read, request, undisturbed};
use crate::wire::{OnRemoteSend, Script, Wire};
use crate::wired::Wired;

const LIMIT: Duration = Duration::from_secs(3);
/// A check comes a little later.
const NOTICED: Duration = Duration::from_millis(3300);

fn watch_over(fleet: &Arc<Fleet>) -> JoinHandle<()> {
    let monitor = HeartbeatMonitor::new(Arc::clone(fleet), LIMIT);
    tokio::spawn(async move { monitor.run(&TokioRuntime::default()).await })
}

#[tokio::test(start_paused = true)]
async fn a_hung_engine_s_streams_go_on_elsewhere_until_it_is_back() {
    let (first, second) = (Scripted::new([Act::Hang]), Scripted::new([]));
    let fleet = fleet(&[&first, &second]);
    let _monitor = watch_over(&fleet);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(RoundRobin::default()), DispatchConfig::default());
    sleep(Duration::from_secs(60)).await;
    assert!(fleet.status().iter().all(|engine| engine.is_ready() && engine.hangs == 0));

    first.heart.stop(true);
    let begun = Instant::now();
    let (outputs, ..) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    assert_eq!(outputs, undisturbed(1, 4));
    assert!((LIMIT - Duration::from_millis(300)..NOTICED).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!((dispatcher.counters().resumed.engine_lost, first.dropped.lock().unwrap().len()), (1, 1));
    let hung = &fleet.status()[0];
    assert_eq!((hung.state, hung.hangs), (EngineState::Hung, 1));
    for _ in 0..4 {
        read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    }
    assert_eq!((first.served(), second.served()), (1, 5));

    // What starts engines again is notified in time.
    timeout(2 * LIMIT - begun.elapsed() + Duration::from_millis(300), fleet.lost(EngineId(0))).await.unwrap();
    first.heart.stop(false);
    sleep(LIMIT / 10).await;
    assert!(fleet.status()[0].is_ready());
    for _ in 0..2 {
        read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    }
    assert_eq!(first.served(), 2);
}

/// Its requests go on, too: there is no other engine.
#[tokio::test(start_paused = true)]
async fn an_only_engine_that_hangs_is_waited_for() {
    let only = Scripted::new([Act::Hang]);
    let fleet = fleet(&[&only]);
    let _monitor = watch_over(&fleet);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(RoundRobin::default()), DispatchConfig::default());
    only.heart.stop(true);
    let stream = dispatcher.generate(request(1, 4)).await.unwrap();
    let back = async {
        sleep(2 * LIMIT).await;
        assert!(!dispatcher.is_ready());
        only.heart.stop(false);
    };
    let ((outputs, ..), ()) = tokio::join!(read(stream, 1), back);
    assert_eq!(outputs, undisturbed(1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_hung_prefill_engine_is_replaced_by_another_or_by_the_decode_engine() {
    for (others, computed) in [(1, 1), (0, 100)] {
        let wire = Arc::new(Wire::default());
        let hangs = Script { remote_send: [OnRemoteSend::Hang].into(), ..Script::default() };
        let prefill = Arc::new(Wired::new(&wire).with(hangs));
        let decode = Arc::new(Wired::new(&wire));
        let mut engines: Vec<(String, Role, Arc<dyn Engine>)> = vec![("p0".into(), Role::Prefill, prefill.clone())];
        engines.extend((0..others).map(|_| ("p1".into(), Role::Prefill, Arc::new(Wired::new(&wire)) as _)));
        engines.push(("d0".into(), Role::Decode, decode.clone()));
        let fleet = Arc::new(Fleet::of_ready(engines));
        let _monitor = watch_over(&fleet);
        let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(Disagg::new(0.0)), DispatchConfig::default());
        prefill.heart.stop(true);
        let begun = Instant::now();
        let (outputs, ..) = read(dispatcher.generate(long_request(100, 1, 4)).await.unwrap(), 1).await;
        assert_eq!(outputs, undisturbed(1, 4));
        assert!(begun.elapsed() < NOTICED, "{:?}", begun.elapsed());
        let decoded = decode.computed_tokens.load(Ordering::Relaxed);
        assert_eq!((decoded, dispatcher.resumed_total()), (computed, 0), "beside {others}");
    }
}

/// Also when the strategy waits for the sender first: what is sent to the hung engine would not arrive.
#[tokio::test(start_paused = true)]
async fn a_hung_receiver_ends_the_call_of_its_sender() {
    let wire = Arc::new(Wire::default());
    let prefill = Wired::new(&wire).with(Script { remote_send: [OnRemoteSend::Hang].into(), ..Script::default() });
    let (prefill, hung) = (Arc::new(prefill), Arc::new(Wired::new(&wire)));
    let other = Arc::new(Wired::new(&wire));
    let roles = [(Role::Prefill, &prefill), (Role::Decode, &hung), (Role::Decode, &other)];
    let engines = roles.iter().enumerate().map(|(at, (role, engine))| {
        let engine: Arc<dyn Engine> = Arc::clone(*engine) as _;
        (format!("engine-{at}"), *role, engine)
    });
    let fleet = Arc::new(Fleet::of_ready(engines));
    let _monitor = watch_over(&fleet);
    let strategy = Arc::new(LongPromptsApart { long_tokens: 10 });
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), strategy, DispatchConfig::default());
    let begun = Instant::now();
    let stream = dispatcher.generate(long_request(100, 1, 4)).await.unwrap();
    sleep(LIMIT / 100).await;
    hung.heart.stop(true);
    let (outputs, ..) = read(stream, 1).await;
    assert_eq!(outputs, undisturbed(1, 4));
    assert!(begun.elapsed() < NOTICED, "{:?}", begun.elapsed());
    assert_eq!((hung.reserved.load(Ordering::Relaxed), hung.open_reservations(), other.starts()), (1, 0, 1));
    assert_eq!((prefill.sends(), prefill.open_sends.load(Ordering::Relaxed)), (2, 0), "it has done nothing wrong");
    assert_eq!(dispatcher.counters().resumed.engine_lost, 1);
}

/// A machine that runs the checks late runs engines late, too.
#[tokio::test]
async fn late_checks_give_engines_longer() {
    let silent = Scripted::new([]);
    let fleet = fleet(&[&silent]);
    let mut monitor = HeartbeatMonitor::new(Arc::clone(&fleet), LIMIT);
    silent.heart.stop(true);
    // Each wait counts as half a second, two intervals, until the limit is full.
    let hung: Vec<bool> = (0..8)
        .map(|check| {
            monitor.check(check * Duration::from_millis(1400));
            fleet.status()[0].hangs > 0
        })
        .collect();
    assert_eq!(hung, [false, false, false, false, false, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_router_that_was_suspended_takes_no_engine_for_hung() {
    let engines = [Scripted::new([]), Scripted::new([])];
    let fleet = fleet(&engines.each_ref());
    let _monitor = watch_over(&fleet);
    sleep(LIMIT).await;
    // No heartbeat arrives meanwhile.
    engines.iter().for_each(|engine| engine.heart.stop(true));
    tokio::time::advance(20 * LIMIT).await;
    sleep(LIMIT / 2).await;
    engines[0].heart.stop(false);
    sleep(LIMIT).await;
    let status = fleet.status();
    assert_eq!([&status[0], &status[1]].map(|engine| (engine.is_ready(), engine.hangs)), [(true, 0), (false, 1)]);
}
