//! A whole engine in this process, over a model that is a hash: what callers see of starting, ending and failing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod fake;

use std::time::Duration;

use baton_core::{
    AdapterId, EngineEvent, Fault, GenerateRequest, Pooling, RequestId, Retry, ServeError, SessionLoad, TokenId,
};
use baton_engine::{EngineConfig, EngineError, EngineHandle, LocalEngine};
use baton_protocol::{Command, Engine, TokenStream};
use fake::{FakeModel, expected_tokens};
use futures_util::FutureExt;
use tokio::sync::mpsc;

const CONTEXT: usize = 100_000;

fn engine(pages: usize) -> EngineHandle {
    start(FakeModel::new(fake::spec(pages, 16, CONTEXT)))
}

fn start(model: FakeModel) -> EngineHandle {
    EngineHandle::spawn(Box::new(model), EngineConfig::default(), None).unwrap()
}

fn request(id: u64, prompt_tokens: u32, choices: usize, max_tokens: u32) -> GenerateRequest {
    fake::request(id, (0..prompt_tokens).map(|at| TokenId((at + id as u32) % 50)), choices, max_tokens)
}

/// Reads to the end: tokens by choice, or the failure.
async fn read(mut stream: TokenStream, choices: usize) -> Result<Vec<Vec<Option<TokenId>>>, ServeError> {
    let mut tokens = vec![Vec::new(); choices];
    while let Some(event) = stream.next().await {
        match event {
            EngineEvent::Prompt(_) => {}
            EngineEvent::Token(event) => tokens[event.choice.index()].push(Some(event.token)),
            EngineEvent::Failed(event) => return Err(event.error),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => panic!("{event:?}"),
        }
    }
    Ok(tokens)
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn streams_of_all_requests_are_exact_and_end() {
    for steps_in_flight in [1, 2] {
        let mut spec = fake::spec(400, 16, CONTEXT);
        spec.steps_in_flight = steps_in_flight;
        streams_are_exact_and_end(LocalEngine::new(start(FakeModel::new(spec)))).await;
    }
}

async fn streams_are_exact_and_end(engine: LocalEngine) {
    let requests: Vec<_> = (0..20).map(|id| request(id, 1 + 13 * id as u32, 1 + id as usize % 3, 40)).collect();
    let mut streams = Vec::new();
    for request in &requests {
        streams.push(engine.start_generate(request.clone(), None).await.unwrap());
    }
    for (request, stream) in requests.iter().zip(streams) {
        let expected: Vec<_> = request
            .choices()
            .map(|choice| expected_tokens(request, choice, engine.info().max_context_tokens as usize))
            .collect();
        assert_eq!(read(stream, expected.len()).await.unwrap(), expected);
    }
    assert_eq!(engine.report().counters.finished, 20);
    assert_eq!(engine.report().load.running, 0);
}

#[tokio::test]
async fn what_the_backend_cannot_do_is_refused() {
    let engine = LocalEngine::new(engine(8));
    let base = || request(1, 10, 1, 0);
    for (request, message) in [
        (GenerateRequest { pooling: Some(Pooling::Mean), ..base() }, "does not pool hidden states this way"),
        (GenerateRequest { adapter: Some(AdapterId(1)), ..base() }, "has no adapter 1"),
    ] {
        let error = read(engine.start_generate(request, None).await.unwrap(), 1).await.unwrap_err();
        assert_eq!((error.fault, error.retry), (Fault::Caller, Retry::Never));
        assert!(error.message.contains(message), "{error}");
    }
}

#[tokio::test]
async fn a_request_for_its_prompt_only_ends_with_it() {
    let engine = LocalEngine::new(engine(8));
    let mut request = request(1, 10, 1, 0);
    request.prompt_logprobs = Some(0);
    let mut stream = engine.start_generate(request, None).await.unwrap();
    let Some(EngineEvent::Prompt(prompt)) = stream.next().await else { panic!("no prompt") };
    assert_eq!(prompt.logprobs.unwrap().len(), 9);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn dropping_a_stream_or_a_session_frees_everything() {
    let handle = engine(4000);
    let (first, second) = (LocalEngine::new(handle.clone()), LocalEngine::new(handle.clone()));
    let mut endless = first.start_generate(request(1, 50, 2, 90_000), None).await.unwrap();
    // Both sessions may use the same id.
    let mut other = second.start_generate(request(1, 60, 1, 90_000), None).await.unwrap();
    assert!(endless.next().await.is_some() && other.next().await.is_some());
    drop(endless);
    eventually("the first request is gone", || handle.report().counters.aborted == 1).await;
    assert!(other.next().await.is_some(), "the other session is not disturbed");
    drop(second);
    eventually("the second one too", || handle.report().counters.aborted == 2).await;
    let load = handle.report().load;
    assert_eq!((load.running, load.waiting, load.pages_free + load.pages_cached), (0, 0, 4000));
}

#[tokio::test]
async fn each_session_gets_the_load_of_the_others() {
    let handle = engine(4000);
    let (busy, silent) = (LocalEngine::new(handle.clone()), LocalEngine::new(handle.clone()));
    let mut endless = busy.start_generate(request(1, 50, 2, 90_000), None).await.unwrap();
    endless.next().await.unwrap();
    eventually("a session without requests gets reports too", || silent.report().others().sequences == 2).await;
    eventually("a session gets its own load", || busy.report().own.sequences == 2).await;
    assert_eq!((busy.report().others().sequences, silent.report().own.sequences), (0, 0));
    drop(endless);
    eventually("and the end of it", || silent.report().others() == SessionLoad::default()).await;
}

#[tokio::test]
async fn a_session_whose_reader_is_gone_is_closed() {
    let handle = engine(4000);
    let (outbox, mut replies) = mpsc::unbounded_channel();
    let session = handle.open_session(outbox);
    handle.send(session, Command::Generate { request: Box::new(request(1, 5, 1, 90_000)), reservation: None }).unwrap();
    // Before that it may get reports.
    while replies.recv().await.unwrap().events.is_empty() {}
    drop(replies);
    eventually("its request is gone", || handle.report().counters.aborted == 1).await;
}

#[tokio::test]
async fn what_a_closed_session_still_sends_is_not_begun() {
    let handle = engine(4000);
    let (outbox, replies) = mpsc::unbounded_channel();
    drop(replies);
    let open = outbox.downgrade();
    let session = handle.open_session(outbox);
    eventually("its reader is gone", || open.upgrade().is_none()).await;
    handle.send(session, Command::Generate { request: Box::new(request(1, 5, 1, 90_000)), reservation: None }).unwrap();
    // The first is answered behind the command, the second behind the step and the report that follow it.
    handle.audit().await.unwrap().unwrap();
    handle.audit().await.unwrap().unwrap();
    let report = handle.report();
    assert_eq!((report.load.running, report.load.waiting, report.counters.steps), (0, 0, 0));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_no_other() {
    let handle = engine(400);
    let engine = LocalEngine::new(handle.clone());
    let slow = engine.start_generate(request(1, 5, 1, 2000), None).await.unwrap();
    let quick = request(2, 5, 1, 20);
    let stream = engine.start_generate(quick.clone(), None).await.unwrap();
    assert_eq!(read(stream, 1).await.unwrap()[0].len(), 20);
    eventually("the unread one ends", || handle.report().counters.finished == 2).await;
    assert_eq!(read(slow, 1).await.unwrap()[0].len(), 2000, "all of it was kept");
}

#[tokio::test]
async fn an_idle_engine_does_nothing() {
    let handle = engine(8);
    let engine = LocalEngine::new(handle.clone());
    read(engine.start_generate(request(1, 5, 1, 3), None).await.unwrap(), 1).await.unwrap();
    eventually("the request ends", || handle.report().counters.finished == 1).await;
    // A busy machine takes its time for what comes then: the step that gives the slot back, and its report.
    for _ in 0..50 {
        let before = handle.report();
        tokio::time::sleep(Duration::from_millis(100)).await;
        if handle.report() == before {
            return;
        }
    }
    panic!("it goes on: {:?}", handle.report());
}

#[tokio::test]
async fn heartbeats_say_whether_there_is_work_and_whether_it_moves() {
    let model = FakeModel::new(fake::spec(4000, 16, CONTEXT));
    let kv = model.kv();
    let handle = start(model);
    let engine = LocalEngine::new(handle.clone());
    eventually("it has nothing to do", || !handle.heartbeat().working).await;
    let mut endless = engine.start_generate(request(1, 5, 1, 90_000), None).await.unwrap();
    endless.next().await.unwrap();
    let before = handle.heartbeat().progress;
    eventually("its work moves", || handle.heartbeat().progress > before).await;
    let stuck = {
        // No step ends while its KV is held.
        let _held = kv.lock().unwrap();
        let pause = || std::thread::sleep(Duration::from_millis(50));
        pause();
        let stuck = handle.heartbeat();
        (0..4).for_each(|_| pause());
        assert_eq!(handle.heartbeat().progress, stuck.progress);
        assert!(stuck.working && handle.heartbeat().working);
        stuck.progress
    };
    eventually("its work moves again", || handle.heartbeat().progress > stuck).await;
    drop(endless);
    eventually("it has nothing to do again", || !handle.heartbeat().working).await;
}

#[tokio::test]
async fn draining_finishes_what_runs_and_refuses_what_is_new() {
    let model = FakeModel::new(fake::spec(400, 16, CONTEXT));
    let kv = model.kv();
    let handle = start(model);
    let engine = LocalEngine::new(handle.clone());
    let mut running = engine.start_generate(request(1, 5, 1, 12_000), None).await.unwrap();
    running.next().await.unwrap();
    let late = {
        // No step ends while its KV is held.
        let _held = kv.lock().unwrap();
        handle.drain();
        engine.start_generate(request(2, 5, 1, 3), None).now_or_never().unwrap()
    };
    let refused = read(late.unwrap(), 1).await.unwrap_err();
    assert_eq!((refused.fault, refused.retry), (Fault::Capacity, Retry::Elsewhere));
    assert_eq!(read(running, 1).await.unwrap()[0].len(), 12_000);
    handle.ended().await.unwrap();
    assert!(!engine.is_alive());
    assert!(engine.start_generate(request(3, 5, 1, 3), None).await.is_err());
}

#[tokio::test]
async fn stopping_fails_what_runs_so_that_it_can_go_on_elsewhere() {
    let handle = engine(4000);
    let engine = LocalEngine::new(handle.clone());
    let mut running = engine.start_generate(request(1, 5, 1, 90_000), None).await.unwrap();
    running.next().await.unwrap();
    handle.stop();
    let error = read(running, 1).await.unwrap_err();
    assert_eq!((error.fault, error.retry), (Fault::Engine, Retry::Elsewhere));
    handle.ended().await.unwrap();
}

#[tokio::test]
async fn a_failing_backend_fails_all_requests_and_ends_the_engine() {
    let mut model = FakeModel::new(fake::spec(400, 16, CONTEXT));
    model.fail_at_slots = Some(3);
    let handle = start(model);
    let engine = LocalEngine::new(handle.clone());
    let streams = [
        engine.start_generate(request(1, 5, 1, 12_000), None).await,
        engine.start_generate(request(2, 5, 2, 12_000), None).await,
    ];
    for stream in streams {
        let error = read(stream.unwrap(), 2).await.unwrap_err();
        assert_eq!((error.fault, error.retry), (Fault::Engine, Retry::Elsewhere));
        assert_eq!(error.message, "the engine failed: device: unplugged");
    }
    assert!(matches!(handle.ended().await, Err(EngineError::Backend(_))));
    let refused = engine.start_generate(request(3, 5, 1, 3), None).await.err().unwrap();
    assert_eq!(refused.retry, Retry::Elsewhere);
}

#[tokio::test]
async fn an_engine_without_handles_stops() {
    let (outbox, mut replies) = mpsc::unbounded_channel();
    let handle = engine(8);
    handle.open_session(outbox);
    drop(handle);
    // Ends because the outboxes go with the engine; before that it may send reports.
    while let Some(reply) = replies.recv().await {
        assert!(reply.events.is_empty());
    }
}

#[test]
fn impossible_settings_are_named() {
    for (step_tokens, max_waiting, option) in [(0, 1, "step_tokens"), (1, 0, "max_waiting")] {
        let config = EngineConfig { step_tokens, max_waiting, ..EngineConfig::default() };
        let error = EngineHandle::spawn(Box::new(FakeModel::new(fake::spec(8, 8, 64))), config, None).err().unwrap();
        assert_eq!(error.to_string(), format!("{option} must be at least 1"));
    }
}

#[tokio::test]
async fn an_abort_is_reported_although_no_event_follows() {
    let handle = engine(400);
    let (outbox, mut replies) = mpsc::unbounded_channel();
    let session = handle.open_session(outbox);
    let generate = Command::Generate { request: Box::new(request(1, 8, 1, 50_000)), reservation: None };
    handle.send(session, generate).unwrap();
    replies.recv().await.unwrap();
    handle.send(session, Command::Abort(RequestId(1))).unwrap();
    loop {
        let reply = tokio::time::timeout(Duration::from_secs(60), replies.recv()).await.unwrap().unwrap();
        if reply.report.counters.aborted == 1 {
            assert_eq!((reply.report.load.running, reply.events.len()), (0, 0));
            return;
        }
    }
}
