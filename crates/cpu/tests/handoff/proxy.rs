//! A wire between two engines that damages what it carries.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// What happens to the bytes from the sender to the receiver.
#[derive(Clone, Copy)]
pub(crate) enum Damage {
    /// One bit of this byte of the stream.
    Flip(usize),
    /// The connection breaks here.
    Cut(usize),
    /// From here on nothing arrives.
    Stall(usize),
}

/// Accepts for `receiver`; every connection is damaged alike.
pub(crate) fn damaged(receiver: SocketAddr, damage: Damage) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for sender in listener.incoming().map_while(Result::ok) {
            let receiver = TcpStream::connect(receiver).unwrap();
            let (answers, back) = (receiver.try_clone().unwrap(), sender.try_clone().unwrap());
            thread::spawn(move || carry(answers, back, None));
            thread::spawn(move || carry(sender, receiver, Some(damage)));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, damage: Option<Damage>) {
    let mut buffer = vec![0; 1 << 16];
    let mut carried = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut bytes = &mut buffer[..count];
        match damage {
            Some(Damage::Flip(at)) if (carried..carried + count).contains(&at) => bytes[at - carried] ^= 4,
            Some(Damage::Stall(at) | Damage::Cut(at)) if carried + count > at => {
                bytes = &mut bytes[..at.saturating_sub(carried)];
            }
            _ => {}
        }
        if to.write_all(bytes).is_err() {
            break;
        }
        carried += count;
        if matches!(damage, Some(Damage::Cut(at)) if carried > at) {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
