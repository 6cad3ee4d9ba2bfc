//! Connections, and generations over them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{
    BlockHash, CacheEvent, CacheUpdate, Choice, EngineEvent, FinishReason, RequestId, ServeError, TokenId,
};
use baton_protocol::{
    CacheFollower, Command, Engine, HEARTBEAT_INTERVAL, Heartbeat, Secret, SessionClient, SessionError, SessionId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, Seen, info, next, prompt, request, token};

#[tokio::test]
async fn requests_share_a_connection_and_each_gets_its_own_events() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    assert_eq!(*client.info(), info());
    let mut one = client.start_generate(request(1, 1, &[5, 6]), None).await.unwrap();
    let mut two = client.start_generate(request(2, 2, &[7]), None).await.unwrap();
    for expected in [request(1, 1, &[5, 6]), request(2, 2, &[7])] {
        assert_eq!(
            engine.next().await,
            Seen::Sent(SessionId(0), Command::Generate { request: Box::new(expected), reservation: None })
        );
    }
    let end = Some(FinishReason::Length);
    engine.reply(0, 1, vec![token(1, 0, 0, None), token(2, 1, 0, end), token(2, 0, 0, None)]);
    engine.reply(0, 2, vec![token(2, 0, 1, end), token(1, 0, 1, end)]);
    for (stream, events) in [
        (&mut one, vec![token(1, 0, 0, None), token(1, 0, 1, end)]),
        (&mut two, vec![token(2, 1, 0, end), token(2, 0, 0, None), token(2, 0, 1, end)]),
    ] {
        for event in events {
            assert_eq!(next(stream).await, Some(event));
        }
        assert_eq!(next(stream).await, None);
    }
    assert_eq!(client.report().sequence, 2);
    // Ended requests need no abort: the next thing the host sees is a new request.
    drop((one, two));
    let _three = client.start_generate(request(3, 1, &[1]), None).await.unwrap();
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::Generate { .. })));
}

#[tokio::test]
async fn older_reports_do_not_replace_newer_ones() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut stream = client.start_generate(request(1, 1, &[1]), None).await.unwrap();
    engine.next().await;
    engine.reply(0, 9, vec![]);
    engine.reply(0, 3, vec![token(1, 0, 0, None)]);
    next(&mut stream).await.unwrap();
    assert_eq!(client.report().sequence, 9);
}

#[tokio::test]
async fn heartbeats_come_by_themselves_and_the_newest_counts() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    for progress in [7, 9] {
        let before = client.heartbeats().unwrap().received;
        let heartbeat = Heartbeat { working: true, progress, slowest_layer: HEARTBEAT_INTERVAL };
        *engine.heartbeat.lock().unwrap() = heartbeat;
        let beats = async {
            while client.heartbeats().unwrap().newest != heartbeat {
                sleep(HEARTBEAT_INTERVAL / 10).await;
            }
        };
        timeout(Duration::from_secs(60), beats).await.expect("no heartbeat");
        assert!(client.heartbeats().unwrap().received > before);
    }
    // Replies are read beside them.
    let mut stream = client.start_generate(request(1, 1, &[1]), None).await.unwrap();
    engine.next().await;
    engine.reply(0, 1, vec![token(1, 0, 0, Some(FinishReason::Length))]);
    assert!(next(&mut stream).await.is_some());
}

#[tokio::test]
async fn dropping_a_stream_aborts_its_request() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    drop(client.start_generate(request(4, 1, &[1]), None).await.unwrap());
    engine.next().await;
    assert_eq!(engine.next().await, Seen::Sent(SessionId(0), Command::Abort(RequestId(4))));
}

#[tokio::test]
async fn a_choice_with_enough_tokens_ends_alone() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut stream = client.start_generate(request(4, 3, &[1]), None).await.unwrap();
    engine.next().await;
    engine.reply(0, 1, vec![token(4, 0, 0, Some(FinishReason::Length)), token(4, 1, 0, None)]);
    for expected in [token(4, 0, 0, Some(FinishReason::Length)), token(4, 1, 0, None)] {
        assert_eq!(next(&mut stream).await, Some(expected));
    }
    // The first has ended by itself, the second is ended twice.
    for choice in [0, 1, 1].map(Choice) {
        stream.end_choice(choice);
    }
    let abort = Command::AbortChoice { request: RequestId(4), choice: Choice(1) };
    assert_eq!(engine.next().await, Seen::Sent(SessionId(0), abort));
    // What crosses the abort on its way is dropped; the stream ends with the last choice that is wanted.
    let end = Some(FinishReason::Length);
    engine.reply(0, 2, vec![token(4, 1, 1, end), token(4, 2, 0, end)]);
    assert_eq!(next(&mut stream).await, Some(token(4, 2, 0, end)));
    assert_eq!(next(&mut stream).await, None);
    drop(stream);
    let _next = client.start_generate(request(5, 1, &[1]), None).await.unwrap();
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::Generate { .. })), "nothing else was sent");
}

#[tokio::test]
async fn a_refused_command_fails_its_request_only() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut refused = client.start_generate(request(1, 1, &[]), None).await.unwrap();
    let Some(EngineEvent::Failed(failed)) = next(&mut refused).await else { panic!("not refused") };
    assert_eq!(failed.error, ServeError::caller("the prompt is empty").about("prompt"));
    assert_eq!(next(&mut refused).await, None);
    let mut served = client.start_generate(request(2, 1, &[1]), None).await.unwrap();
    engine.next().await;
    engine.reply(0, 1, vec![token(2, 0, 0, None)]);
    assert_eq!(next(&mut served).await, Some(token(2, 0, 0, None)));
}

#[tokio::test]
async fn the_end_of_the_engine_ends_all_streams() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut streams = [
        client.start_generate(request(1, 1, &[1]), None).await.unwrap(),
        client.start_generate(request(2, 1, &[1]), None).await.unwrap(),
    ];
    for _ in 0..2 {
        engine.next().await;
    }
    assert!(client.is_alive());
    engine.server.abort();
    for stream in &mut streams {
        assert_eq!(next(stream).await, None);
    }
    assert!(!client.is_alive());
    timeout(Duration::from_secs(60), client.closed()).await.expect("not closed");
    assert!(client.start_generate(request(3, 1, &[1]), None).await.is_err());
}

#[tokio::test]
async fn a_host_that_drops_its_outbox_ends_the_session_after_its_last_reply() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut stream = client.start_generate(request(1, 1, &[1]), None).await.unwrap();
    engine.next().await;
    engine.reply(0, 1, vec![token(1, 0, 0, None)]);
    engine.outboxes.lock().unwrap().clear();
    assert_eq!(next(&mut stream).await, Some(token(1, 0, 0, None)));
    assert_eq!(next(&mut stream).await, None);
    assert_eq!(engine.next().await, Seen::Closed(SessionId(0)));
}

#[tokio::test]
async fn the_end_of_the_router_closes_its_session_and_no_other() {
    let mut engine = Fixture::start().await;
    let (one, two) = (engine.connect().await, engine.connect().await);
    let _stream = one.start_generate(request(1, 1, &[1]), None).await.unwrap();
    engine.next().await;
    drop(one);
    assert_eq!(engine.next().await, Seen::Closed(SessionId(0)));
    assert!(two.is_alive());
}

#[tokio::test]
async fn a_wrong_secret_is_refused_with_a_reason() {
    let mut engine = Fixture::start().await;
    let refused = SessionClient::connect(engine.address, &Secret::new("wrong")).await.err().unwrap();
    assert_eq!(refused.to_string(), "refused: wrong secret");
    engine.connect().await;
}

#[tokio::test]
async fn an_engine_that_does_not_know_the_secret_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 48];
        stream.read_exact(&mut hello).await.unwrap();
        // A welcome with 32 zero bytes for a proof, and an info that decodes.
        let header = [[1].as_slice(), &[0; 32], &[1, b'm', 1, b'n', 8, 64, 2, 1, 1]].concat();
        let mut bytes = b"BATN\x04\x02\0\0\x20\0\0\0\0\0\0\0".to_vec();
        bytes.extend([0; 32]);
        bytes.extend(b"BATN\x04\x04\0\0");
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(header);
        stream.write_all(&bytes).await.unwrap();
        let _keep_open = stream.read(&mut hello).await;
    });
    let error = SessionClient::connect(address, &Secret::new("right")).await.err().unwrap();
    assert!(matches!(error, SessionError::Impostor), "{error}");
}

#[tokio::test]
async fn strangers_and_broken_peers_do_not_disturb_the_listener() {
    let mut engine = Fixture::start().await;
    let cases: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BATN\x05\x01\0\0\x20\0\0\0\0\0\0\0",
        b"BATN\x04\x05\0\0\0\0\0\0\0\0\0\0",
        b"BATN\x04\x01\0\0\xff\xff\xff\x7f\0\0\0\0",
        b"BATN\x04\x01\0\0\x01\0\0\0\0\0\0\0\0",
    ];
    for bytes in cases {
        let mut stream = TcpStream::connect(engine.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // Closed, by reset when bytes were left unread.
        let _ = timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.expect("not closed");
        assert_eq!(answer.is_empty(), bytes[4] != 5, "only another version gets a reason: {answer:?}");
    }
    engine.connect().await;
}

#[derive(Default)]
struct Updates(Mutex<Vec<CacheUpdate>>);

impl CacheFollower for Updates {
    fn cache_changed(self: Arc<Self>, update: CacheUpdate) {
        self.0.lock().unwrap().push(update);
    }
}

#[tokio::test]
async fn cache_events_arrive_before_the_events_of_their_reply() {
    let mut engine = Fixture::start().await;
    let client = engine.connect().await;
    let mut stream = client.start_generate(request(1, 1, &[5]), None).await.unwrap();
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::Generate { .. })));
    let update = |first, events| CacheUpdate { first, events };
    engine.reply_with_cache(0, vec![prompt(1)], update(0, vec![]));
    next(&mut stream).await.unwrap();

    let follower = Arc::new(Updates::default());
    client.follow_cache(Arc::clone(&follower) as _);
    assert!(matches!(engine.next().await, Seen::Sent(_, Command::FollowCache)));
    let blocks: Vec<_> = BlockHash::chain(&[TokenId(1); 64], None).collect();
    let updates = [
        update(0, vec![CacheEvent::Reset, CacheEvent::Stored { parent: None, blocks: blocks.clone() }]),
        update(2, vec![]),
        update(2, vec![CacheEvent::Removed { blocks }]),
    ];
    for (index, update) in updates.iter().enumerate() {
        engine.reply_with_cache(0, vec![token(1, 0, index as u32, None)], update.clone());
        next(&mut stream).await.unwrap();
        assert_eq!(*follower.0.lock().unwrap(), updates[..=index]);
    }
}
