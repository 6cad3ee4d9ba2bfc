//! Where the two legs of an SGLang request meet. Both come with the number of a room, in either order; the prefill leg waits
//! for the other.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::book::{Book, lock};
use super::desk::Refusal;

pub(super) struct Rooms {
    timeout: Duration,
    book: Mutex<Book<u64, Room>>,
}

enum Room {
    /// The prefill leg is here.
    Prefill(oneshot::Sender<Guest>),
    /// The decode leg is.
    Decode(Guest),
    Used,
}

/// A decode leg that waits.
pub(super) struct Guest {
    prompt: u64,
    answer: oneshot::Sender<Result<u32, Refusal>>,
}

impl Rooms {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, book: Mutex::default() }
    }

    /// By the prefill leg.
    pub(super) fn open(&self, number: u64) -> Result<Host, Refusal> {
        let (arrival, guest) = oneshot::channel();
        let mut book = lock(&self.book);
        match book.entries.get_mut(&number) {
            None => book.insert(number, Room::Prefill(arrival)),
            Some(room @ Room::Decode(_)) => {
                if let Room::Decode(guest) = std::mem::replace(room, Room::Used) {
                    // The receiver is at hand.
                    let _ = arrival.send(guest);
                }
            }
            Some(_) => return Err(Refusal::Used),
        }
        Ok(Host { guest, timeout: self.timeout })
    }

    /// By the decode leg. Answered when the KV has arrived.
    pub(super) fn join(&self, number: u64, prompt: u64) -> impl Future<Output = Result<u32, Refusal>> + use<> {
        let (answer, answered) = oneshot::channel();
        let guest = Guest { prompt, answer };
        let mut book = lock(&self.book);
        let entered = match book.entries.get_mut(&number) {
            None => {
                book.insert(number, Room::Decode(guest));
                Ok(())
            }
            Some(room @ Room::Prefill(_)) => {
                if let Room::Prefill(host) = std::mem::replace(room, Room::Used) {
                    // A host that has left is waited for all the same.
                    let _ = host.send(guest);
                }
                Ok(())
            }
            Some(_) => Err(Refusal::Used),
        };
        let deadline = Instant::now() + self.timeout;
        async move {
            entered?;
            if let Ok(Ok(answer)) = tokio::time::timeout_at(deadline, answered).await {
                return answer;
            }
            // A prefill leg that fails says nothing: as in the original, whoever waits for it waits in vain.
            tokio::time::sleep_until(deadline).await;
            Err(Refusal::NoShow)
        }
    }
}

/// The prefill leg in its room.
pub(super) struct Host {
    guest: oneshot::Receiver<Guest>,
    timeout: Duration,
}

impl Host {
    pub(super) async fn guest(&mut self) -> Result<Guest, Refusal> {
        match tokio::time::timeout(self.timeout, &mut self.guest).await {
            Ok(Ok(guest)) => Ok(guest),
            Ok(Err(_)) | Err(_) => Err(Refusal::NoShow),
        }
    }
}

impl Guest {
    pub(super) fn serve(self, prompt: u64, tokens: u32) -> Result<(), Refusal> {
        let answer = if self.prompt == prompt { Ok(tokens) } else { Err(Refusal::OtherPrompt) };
        // A guest that has left needs no answer.
        let _ = self.answer.send(answer);
        answer.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn legs_meet_in_either_order_and_a_room_is_used_once() {
        let rooms = Rooms::new(Duration::from_secs(30));
        for (number, decode_first) in [(1, true), (2, false)] {
            let early = decode_first.then(|| rooms.join(number, 7));
            let mut host = rooms.open(number).unwrap();
            let joined = early.unwrap_or_else(|| rooms.join(number, 7));
            host.guest().await.unwrap().serve(7, 50).unwrap();
            assert_eq!(joined.await, Ok(50));
            assert_eq!(rooms.open(number).err(), Some(Refusal::Used));
            assert_eq!(rooms.join(number, 7).await, Err(Refusal::Used));
        }
        let mut host = rooms.open(3).unwrap();
        let joined = rooms.join(3, 8);
        assert_eq!(host.guest().await.unwrap().serve(7, 50), Err(Refusal::OtherPrompt));
        assert_eq!(joined.await, Err(Refusal::OtherPrompt));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let rooms = Rooms::new(Duration::from_secs(30));
        assert_eq!(rooms.join(1, 7).await, Err(Refusal::NoShow));
        drop(rooms.open(3).unwrap());
        assert_eq!(rooms.join(3, 7).await, Err(Refusal::NoShow));
        assert_eq!(rooms.open(2).unwrap().guest().await.err(), Some(Refusal::NoShow));
    }
}
