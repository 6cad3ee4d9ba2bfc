//! The calls before a generation, and what is given back when they do not lead to one.

use baton_core::{
    Attempt, EngineEvent, FailedEvent, RequestId, ReservationId, ReservedEvent, Retry, SentEvent, ServeError,
    TokenRange,
};
use baton_protocol::{Command, Destination, Engine, PrepRecv, RemoteSend, Reservation, Sent, SessionClient, SessionId};
use futures_util::FutureExt;

use crate::fixture::{Fixture, Seen, next, prompt, request, token};

const R: RequestId = RequestId(1);
const A: Attempt = Attempt(0);
const PROMPT: &[u32] = &[5, 6, 7];

fn reserved(reservation: u64) -> EngineEvent {
    let reservation = ReservationId(reservation);
    EngineEvent::Reserved(ReservedEvent { request: R, attempt: A, reservation, matched: 0, target: vec![1, 255] })
}

fn destination() -> Destination {
    Destination { matched: 0, end: 2, target: [1, 255].into() }
}

fn command(command: Command) -> Seen {
    Seen::Sent(SessionId(0), command)
}

impl Fixture {
    async fn reserve(&mut self, client: &SessionClient, reservation: u64) -> Reservation {
        let call = client.prep_recv(&request(1, 1, PROMPT), 2);
        assert!(matches!(self.next().await, Seen::Sent(_, Command::PrepRecv(_))));
        self.reply(0, 1, vec![reserved(reservation)]);
        call.await.unwrap()
    }

    /// The session is silent: what it sends next is the reply to this.
    async fn expect_nothing(&mut self, client: &SessionClient) {
        let _marker = client.start_generate(request(99, 1, &[1]), None).await.unwrap();
        let seen = self.next().await;
        assert!(
            matches!(&seen, Seen::Sent(_, Command::Generate { request, .. }) if request.id == RequestId(99)),
            "{seen:?}"
        );
    }
}

#[tokio::test]
async fn the_prompt_goes_to_each_engine_once() {
    let (mut decode, mut prefill) = (Fixture::start().await, Fixture::start().await);
    let (d, p) = (decode.connect().await, prefill.connect().await);
    let wanted = request(1, 1, PROMPT);

    let call = d.prep_recv(&wanted, 2);
    let prep_recv =
        PrepRecv { request: R, attempt: A, prompt: wanted.prompt.clone(), adapter: None, end: 2, lease_ms: None };
    assert_eq!(decode.next().await, command(Command::PrepRecv(Box::new(prep_recv))));
    decode.reply(0, 1, vec![reserved(7)]);
    let reservation = call.await.unwrap();
    assert_eq!((reservation.id(), &*reservation), (ReservationId(7), &destination()));

    let range = reservation.missing().unwrap();
    let call = p.remote_send(&wanted, &reservation, range);
    let remote_send = RemoteSend {
        request: R,
        attempt: A,
        prompt: wanted.prompt.clone(),
        adapter: None,
        range,
        target: vec![1, 255],
    };
    assert_eq!(prefill.next().await, command(Command::RemoteSend(Box::new(remote_send))));
    prefill.reply(0, 1, vec![EngineEvent::Sent(SentEvent { request: R, attempt: A, verified_tokens: 2 })]);
    let sent = call.await.unwrap();
    assert_eq!(sent, Sent { verified_tokens: 2 });

    let mut stream = d.start_generate(wanted, Some((reservation, Some(sent)))).await.unwrap();
    let generate = Command::Generate { request: Box::new(request(1, 1, &[])), reservation: Some(ReservationId(7)) };
    assert_eq!(decode.next().await, command(generate));
    assert_eq!(decode.next().await, command(Command::Release(ReservationId(7))), "all is there: nothing to wait for");
    decode.reply(0, 2, vec![prompt(1), token(1, 0, 0, None)]);
    assert_eq!(next(&mut stream).await, Some(prompt(1)));
    assert_eq!(next(&mut stream).await, Some(token(1, 0, 0, None)));
}

#[tokio::test]
async fn a_reservation_that_is_dropped_is_released() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    drop(engine.reserve(&client, 7).await);
    assert_eq!(engine.next().await, command(Command::Release(ReservationId(7))));
}

#[tokio::test]
async fn the_end_of_kv_is_reported_once_to_the_request_that_waits_for_it() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let reservation = engine.reserve(&client, 7).await;
    let mut stream = client.start_generate(request(1, 1, PROMPT), Some((reservation, None))).await.unwrap();
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::Generate { .. })));
    engine.expect_nothing(&client).await;
    assert_eq!(engine.next().await, command(Command::Abort(RequestId(99))));
    stream.expect_no_more();
    stream.expect_no_more();
    assert_eq!(engine.next().await, command(Command::Release(ReservationId(7))));
    engine.expect_nothing(&client).await;
}

#[tokio::test]
async fn a_reservation_is_used_up_when_the_prompt_is_computed() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let reservation = engine.reserve(&client, 7).await;
    let mut stream = client.start_generate(request(1, 1, PROMPT), Some((reservation, None))).await.unwrap();
    engine.next().await;
    engine.reply(0, 2, vec![prompt(1)]);
    next(&mut stream).await.unwrap();
    stream.expect_no_more();
    drop(stream);
    assert_eq!(engine.next().await, command(Command::Abort(R)));
    engine.expect_nothing(&client).await;
}

#[tokio::test]
async fn a_request_that_fails_before_its_prompt_gives_its_reservation_back() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let reservation = engine.reserve(&client, 7).await;
    let mut stream = client.start_generate(request(1, 1, PROMPT), Some((reservation, None))).await.unwrap();
    engine.next().await;
    let failed = FailedEvent { request: R, attempt: A, error: ServeError::busy("full", 1) };
    engine.reply(0, 2, vec![EngineEvent::Failed(failed.clone())]);
    assert_eq!(next(&mut stream).await, Some(EngineEvent::Failed(failed)));
    drop(stream);
    assert_eq!(engine.next().await, command(Command::Release(ReservationId(7))));
}

#[tokio::test]
async fn a_call_whose_answer_is_not_read_is_aborted() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let wanted = request(1, 1, PROMPT);
    drop(client.prep_recv(&wanted, 2));
    engine.next().await;
    assert_eq!(engine.next().await, command(Command::Abort(R)));

    // The answer has arrived, but was not read: the engine must not keep the pages.
    let mut marker = client.start_generate(request(2, 1, &[1]), None).await.unwrap();
    let call = client.prep_recv(&wanted, 2);
    engine.next().await;
    engine.next().await;
    engine.reply(0, 1, vec![reserved(8), token(2, 0, 0, None)]);
    next(&mut marker).await.unwrap();
    drop(call);
    assert_eq!(engine.next().await, command(Command::Abort(R)));

    // In the middle of waiting.
    let mut call = client.remote_send(&wanted, &destination(), TokenRange::up_to(2));
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::RemoteSend(_))));
    assert!((&mut call).now_or_never().is_none());
    drop(call);
    assert_eq!(engine.next().await, command(Command::Abort(R)));
}

#[tokio::test]
async fn an_answer_that_was_read_needs_no_abort() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let wanted = request(1, 1, PROMPT);
    let answers = [
        (EngineEvent::Sent(SentEvent { request: R, attempt: A, verified_tokens: 1 }), Ok(Sent { verified_tokens: 1 })),
        (
            EngineEvent::Failed(FailedEvent { request: R, attempt: A, error: ServeError::engine("stopped") }),
            Err(ServeError::engine("stopped")),
        ),
    ];
    for (answer, expected) in answers {
        let call = client.remote_send(&wanted, &destination(), TokenRange::up_to(2));
        engine.next().await;
        engine.reply(0, 1, vec![answer]);
        assert_eq!(call.await, expected);
    }
    engine.expect_nothing(&client).await;
}

#[tokio::test]
async fn calls_fail_when_their_session_ends() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let reservation = engine.reserve(&client, 7).await;
    let prep_recv = client.prep_recv(&request(1, 1, PROMPT), 2);
    let remote_send = client.remote_send(&request(2, 1, PROMPT), &destination(), TokenRange::up_to(2));
    engine.next().await;
    engine.next().await;
    engine.server.abort();
    for error in [prep_recv.await.err().unwrap(), remote_send.await.unwrap_err()] {
        assert_eq!(
            (error.retry, error.message.as_str()),
            (Retry::Elsewhere, "engine session: the peer closed the connection")
        );
    }
    assert!(client.prep_recv(&request(3, 1, PROMPT), 2).await.is_err());
    assert!(client.start_generate(request(1, 1, PROMPT), Some((reservation, None))).await.is_err());
}
