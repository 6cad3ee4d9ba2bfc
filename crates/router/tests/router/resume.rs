//! Whatever engines do, the client's stream is the undisturbed one.

use std::sync::Arc;
use std::time::Duration;

use crate::scripted::{Act, Scripted, fleet, read, request, token, undisturbed};
use baton_core::{Attempt, Fault, Retry, ServeError};
use baton_router::{DispatchConfig, Dispatcher, EngineId, Fleet, LeastLoaded, RetryPolicy, Role, RoundRobin};

fn dispatcher(engines: &[&Arc<Scripted>]) -> Dispatcher {
    Dispatcher::new(fleet(engines), Arc::new(RoundRobin::default()), DispatchConfig::default())
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_invisible_to_the_client() {
    let cases = [
        ("dies at once", vec![Act::DieAfter(0)], 1),
        ("dies in mid-stream", vec![Act::DieAfter(3)], 1),
        ("dies before its last token", vec![Act::DieAfter(5)], 1),
        ("fails in mid-stream", vec![Act::FailAfter(2, ServeError::engine("preempted"))], 1),
        ("is busy", vec![Act::FailAfter(2, ServeError::busy("full", 700))], 1),
        ("refuses", vec![Act::Refuse(ServeError::engine("closing"))], 1),
        ("repeats from the start", vec![Act::FailAfter(2, ServeError::engine("x")), Act::Repeat, Act::Repeat], 1),
        ("skips a token", vec![Act::Skip], 1),
        ("speaks for an older attempt", vec![Act::FailAfter(2, ServeError::engine("x")), Act::EchoOldAttempt], 1),
        ("fails again and again", vec![Act::FailAfter(1, ServeError::engine("x")); 3], 5),
    ];
    for (fault, acts, attempts_at_most) in cases {
        for choices in [1, 2] {
            let engines = [Scripted::new(acts.clone()), Scripted::new(acts.iter().skip(1).cloned())];
            let dispatcher = dispatcher(&[&engines[0], &engines[1]]);
            let stream = dispatcher.generate(request(choices, 6)).await.unwrap();
            let (outputs, prompts, failure) = read(stream, choices).await;
            assert_eq!(failure, None, "{fault}");
            assert_eq!(outputs, undisturbed(choices as u32, 6), "{fault}, n = {choices}");
            assert_eq!(prompts, 1, "{fault}");
            let resumed = dispatcher.resumed_total();
            assert!((1..=attempts_at_most).contains(&resumed), "{fault}: resumed {resumed} times");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_engine_continues_after_the_last_token() {
    let (first, second) = (Scripted::new([Act::DieAfter(2)]), Scripted::new([]));
    let dispatcher = dispatcher(&[&first, &second]);
    let stream = dispatcher.generate(request(2, 4)).await.unwrap();
    read(stream, 2).await;
    let resumed = second.requests.lock().unwrap()[0].clone();
    assert_eq!(resumed.outputs, [[token(0, 0), token(0, 1)], [token(1, 0), token(1, 1)]]);
    assert_eq!((resumed.attempt, resumed.ended), (Attempt(1), vec![false, false]));
    assert_eq!(resumed.id, first.requests.lock().unwrap()[0].id);
}

#[tokio::test(start_paused = true)]
async fn a_caller_s_fault_is_reported_once_and_not_retried() {
    let error = ServeError::caller("prompt is too long").about("prompt");
    let engine = Scripted::new([Act::FailAfter(0, error.clone())]);
    let dispatcher = dispatcher(&[&engine]);
    let (_, _, failure) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    assert_eq!(failure, Some(error));
    assert_eq!((engine.served(), dispatcher.resumed_total()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_no_tokens_ends_with_its_prompt() {
    let (first, second) = (Scripted::new([Act::Refuse(ServeError::engine("x"))]), Scripted::new([]));
    let dispatcher = dispatcher(&[&first, &second]);
    let (outputs, prompts, failure) = read(dispatcher.generate(request(1, 0)).await.unwrap(), 1).await;
    assert_eq!((outputs, prompts, failure), (vec![vec![]], 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_lone_engine_that_died_is_waited_for() {
    let (engine, restarted) = (Scripted::new([Act::DieAfter(2)]), Scripted::new([]));
    let fleet = fleet(&[&engine]);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(LeastLoaded), DispatchConfig::default());
    let stream = dispatcher.generate(request(1, 6)).await.unwrap();
    let restart = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!dispatcher.is_ready());
        fleet.engine_down(EngineId(0));
        fleet.engine_restarting(EngineId(0));
        tokio::time::sleep(Duration::from_secs(5)).await;
        fleet.engine_ready(EngineId(0), Arc::clone(&restarted) as _);
    };
    let ((outputs, ..), ()) = tokio::join!(read(stream, 1), restart);
    assert_eq!(outputs, undisturbed(1, 6));
    let status = &dispatcher.fleet_status()[0];
    assert_eq!((status.restarts, status.is_ready()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn no_engine_at_all_is_an_error_after_a_bounded_wait() {
    let fleet = Arc::new(Fleet::new([("engine-0".to_owned(), Role::Mixed)]));
    let dispatcher = Dispatcher::new(fleet, Arc::new(LeastLoaded), DispatchConfig::default());
    let begun = tokio::time::Instant::now();
    let (_, _, failure) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    let failure = failure.unwrap();
    assert_eq!(failure.message, "no engine is running; waited 30 s for one");
    assert_eq!((failure.fault, failure.retry), (Fault::Engine, Retry::AfterMs(1000)));
    assert!(begun.elapsed() < Duration::from_secs(31));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_kills_every_engine_is_given_up() {
    let engine = Scripted::new(vec![Act::FailAfter(0, ServeError::engine("broken")); 99]);
    let config = DispatchConfig {
        retry: RetryPolicy { max_attempts: 4, ..RetryPolicy::default() },
        ..DispatchConfig::default()
    };
    let dispatcher = Dispatcher::new(fleet(&[&engine]), Arc::new(LeastLoaded), config);
    let (_, _, failure) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    assert_eq!(failure.unwrap().message, "broken (after 4 attempts)");
    assert_eq!(engine.served(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_gone_silent_is_left() {
    let (first, second) = (Scripted::new([Act::Hang]), Scripted::new([]));
    let dispatcher = dispatcher(&[&first, &second]);
    let begun = tokio::time::Instant::now();
    let (outputs, ..) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    assert_eq!(outputs, undisturbed(1, 4));
    let silence = RetryPolicy::default().max_silence;
    assert!((silence..silence + Duration::from_secs(1)).contains(&begun.elapsed()));
    assert_eq!((dispatcher.counters().resumed.failed, first.dropped.lock().unwrap().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_aborts_its_request() {
    let engine = Scripted::new([Act::Hang]);
    let dispatcher = dispatcher(&[&engine]);
    let mut stream = dispatcher.generate(request(1, 4)).await.unwrap();
    stream.next().await.unwrap();
    assert_eq!(dispatcher.requests_in_flight(), 1);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(engine.dropped.lock().unwrap().len(), 1);
    assert_eq!(dispatcher.requests_in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn too_many_open_requests_are_turned_away() {
    let engine = Scripted::new(vec![Act::Hang; 2]);
    let config = DispatchConfig { max_in_flight: 2, ..DispatchConfig::default() };
    let dispatcher = Dispatcher::new(fleet(&[&engine]), Arc::new(LeastLoaded), config);
    let _open = [dispatcher.generate(request(1, 4)).await.unwrap(), dispatcher.generate(request(1, 4)).await.unwrap()];
    let refused = dispatcher.generate(request(1, 4)).await.err().unwrap();
    assert_eq!((refused.fault, refused.retry), (Fault::Capacity, Retry::AfterMs(1000)));
}
