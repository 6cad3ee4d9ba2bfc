//! Who gets nothing from a KV port, and how fast.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::*;
use crate::fence::FenceTable;
use crate::layout::{KvLayout, PageOrder};
use crate::wire::host_identity;
use crate::{FabricOptions, HostMemory, KvMemory, Receiver};

const KEY: [u8; 32] = [7; 32];
const LIMITS: PortLimits = PortLimits { greeting: Duration::from_millis(300), silence: Duration::from_millis(600) };
/// However busy this machine is.
const LATEST: Duration = Duration::from_secs(30);

fn memory() -> HostMemory {
    HostMemory::new(KvLayout { order: PageOrder::PlainF32, layers: 1, kv_heads: 1, head_dim: 4 }, 2, 1).unwrap()
}

struct Port(std::net::SocketAddr, #[expect(dead_code, reason = "it listens while it lives")] Receiver);

fn port() -> Port {
    let options =
        FabricOptions { numerics_id: "n".to_owned(), shm_allowed: true, key: PortKey::new(KEY), limits: LIMITS };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    Port(address, Receiver::start(listener, Arc::new(memory()), options, Arc::default(), |_| ()).unwrap())
}

impl Port {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(LATEST)).unwrap();
        stream
    }
}

fn hello() -> Hello {
    let (shards, fences) = (memory().addresses(), FenceTable::new().unwrap().address());
    Hello { shards, fences, host: host_identity(), shm_allowed: false }
}

/// All that comes before the connection ends. A reset is an end too.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("still open after {LATEST:?}"),
        _ => bytes,
    }
}

#[test]
fn a_holder_of_the_secret_is_welcome_and_others_get_a_reason_and_nothing_else() {
    let port = port();
    let stream = port.connect();
    assert_eq!(introduce(&stream, &PortKey::new(KEY), &LIMITS, &hello()).unwrap(), Transport::Tcp);

    let mut stranger = port.connect();
    let refused = introduce(&stranger, &PortKey::new([8; 32]), &LIMITS, &hello()).unwrap_err().to_string();
    assert_eq!(refused, "the receiver refused: wrong secret");
    assert_eq!(until_closed(&mut stranger), b"");
}

#[test]
fn a_receiver_that_does_not_know_the_secret_gets_no_kv() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let nonce = Nonce::random().unwrap();
        write_message(&mut stream, &ToSender::Challenge(Challenge { nonce })).unwrap();
        let Some(Open { proof, .. }) = read_message(&mut stream).unwrap() else { panic!("an opening") };
        // The sender's own proof is no answer.
        write_message(&mut stream, &ToSender::Welcome { transport: Transport::Tcp, proof }).unwrap();
    });
    let stream = TcpStream::connect(address).unwrap();
    let error = introduce(&stream, &PortKey::new(KEY), &LIMITS, &hello()).unwrap_err().to_string();
    assert_eq!(error, "the receiver refused: it does not know the secret");
    impostor.join().unwrap();
}

#[test]
fn a_silent_or_trickling_peer_is_dropped_in_time() {
    let port = port();
    let mut silent = port.connect();
    let mut trickling = port.connect();
    let started = Instant::now();
    until_closed(&mut silent);
    assert!(started.elapsed() >= LIMITS.greeting / 2);
    let mut sent = 0;
    trickling.write_all(&64_u32.to_le_bytes()).unwrap_or(());
    while trickling.write_all(&[0]).is_ok() {
        sent += 1;
        assert!(sent < 63, "a byte now and then keeps the connection open");
        std::thread::sleep(LIMITS.greeting / 8);
    }
}

#[test]
fn an_idle_connection_ends_unless_its_sender_shows_that_it_lives() {
    let port = port();
    let (mut silent, alive) = (port.connect(), port.connect());
    for stream in [&silent, &alive] {
        introduce(stream, &PortKey::new(KEY), &LIMITS, &hello()).unwrap();
    }
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (ended, mut living) = (done.clone(), alive.try_clone().unwrap());
    let beating = std::thread::spawn(move || {
        while !ended.load(Ordering::Acquire) {
            write_message(&mut living, &crate::wire::ToReceiver::Alive).unwrap();
            std::thread::sleep(LIMITS.keep_alive() / 4);
        }
    });
    silent.set_read_timeout(Some(LATEST)).unwrap();
    assert_eq!(until_closed(&mut silent), b"");
    alive.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let error = (&alive).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "nothing is sent to it, and it is not closed");
    done.store(true, Ordering::Release);
    beating.join().unwrap();
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let port = port();
    let longest = [&(MAX_OPEN_BYTES as u32).to_le_bytes()[..], &[0xff; MAX_OPEN_BYTES]].concat();
    for garbage in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], b"\xff\xff\xff\xff", b"\x01\0\0\0\x09", &longest] {
        let mut stream = port.connect();
        stream.write_all(garbage).unwrap();
        until_closed(&mut stream);
    }
    assert!(introduce(&port.connect(), &PortKey::new(KEY), &LIMITS, &hello()).is_ok());
}

#[test]
fn a_failing_accept_backs_off_and_places_are_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (entered, served) = channel();
    let hold = Arc::new(std::sync::Mutex::new(()));
    let held = hold.lock().unwrap();
    let serve = {
        let hold = hold.clone();
        move |stream: TcpStream| {
            entered.send(()).unwrap_or(());
            drop(hold.lock());
            drop(stream);
        }
    };
    // Nine failures, a full house and one more, and the end.
    let mut calls = 0;
    let mut clients = Vec::new();
    let accept = || {
        calls += 1;
        match calls {
            1..10 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            10..=266 => {
                clients.push(TcpStream::connect(address)?);
                listener.accept().map(|(stream, _)| stream)
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    };
    let mut pauses = Vec::new();
    accept_all(accept, |pause| pauses.push(pause.as_millis()), serve);
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    for _ in 0..MAX_SENDERS {
        served.recv_timeout(LATEST).unwrap();
    }
    let mut turned_away = clients.pop().unwrap();
    turned_away.set_read_timeout(Some(LATEST)).unwrap();
    assert_eq!(until_closed(&mut turned_away), b"");
    drop(held);
}
