//! The two legs of an SGLang request, joined by their `bootstrap_room`. Either leg may arrive first; the prefill leg waits for
//! the decode leg.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bounded_map::{BoundedMap, lock};
use super::handoffs::KvError;

pub(super) struct LegSessions {
    timeout: Duration,
    by_room: Mutex<BoundedMap<u64, PairedLegs>>,
}

enum PairedLegs {
    /// Only the prefill leg has arrived.
    Prefill(oneshot::Sender<DecodeLeg>),
    /// Only the decode leg has arrived.
    Decode(DecodeLeg),
    Used,
}

/// A decode leg that waits for its KV.
pub(super) struct DecodeLeg {
    prompt: u64,
    answer: oneshot::Sender<Result<u32, KvError>>,
}

impl LegSessions {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, by_room: Mutex::default() }
    }

    /// Called by the prefill leg.
    pub(super) fn open(&self, room: u64) -> Result<PrefillLeg, KvError> {
        let (arrival, decode_leg) = oneshot::channel();
        let mut by_room = lock(&self.by_room);
        match by_room.entries.get_mut(&room) {
            None => by_room.insert(room, PairedLegs::Prefill(arrival)),
            Some(session @ PairedLegs::Decode(_)) => {
                if let PairedLegs::Decode(decode_leg) = std::mem::replace(session, PairedLegs::Used) {
                    // Cannot fail: the receiver is still in this function.
                    let _ = arrival.send(decode_leg);
                }
            }
            Some(_) => return Err(KvError::Used),
        }
        Ok(PrefillLeg { decode_leg, timeout: self.timeout })
    }

    /// Called by the decode leg. Returns the number of tokens once their KV has arrived.
    pub(super) fn join(&self, room: u64, prompt: u64) -> impl Future<Output = Result<u32, KvError>> + use<> {
        let (answer, answered) = oneshot::channel();
        let decode_leg = DecodeLeg { prompt, answer };
        let mut by_room = lock(&self.by_room);
        let entered = match by_room.entries.get_mut(&room) {
            None => {
                by_room.insert(room, PairedLegs::Decode(decode_leg));
                Ok(())
            }
            Some(session @ PairedLegs::Prefill(_)) => {
                if let PairedLegs::Prefill(prefill_leg) = std::mem::replace(session, PairedLegs::Used) {
                    // When the prefill leg has been dropped, the decode leg still waits until its deadline.
                    let _ = prefill_leg.send(decode_leg);
                }
                Ok(())
            }
            Some(_) => Err(KvError::Used),
        };
        let deadline = Instant::now() + self.timeout;
        async move {
            entered?;
            if let Ok(Ok(answer)) = tokio::time::timeout_at(deadline, answered).await {
                return answer;
            }
            // A prefill leg that fails does not report it: as in SGLang, the decode leg runs into its timeout.
            tokio::time::sleep_until(deadline).await;
            Err(KvError::PeerTimeout)
        }
    }
}

/// The prefill leg of a session.
pub(super) struct PrefillLeg {
    decode_leg: oneshot::Receiver<DecodeLeg>,
    timeout: Duration,
}

impl PrefillLeg {
    /// Waits for the decode leg.
    pub(super) async fn decode_leg(&mut self) -> Result<DecodeLeg, KvError> {
        match tokio::time::timeout(self.timeout, &mut self.decode_leg).await {
            Ok(Ok(decode_leg)) => Ok(decode_leg),
            Ok(Err(_)) | Err(_) => Err(KvError::PeerTimeout),
        }
    }
}

impl DecodeLeg {
    pub(super) fn serve(self, prompt: u64, tokens: u32) -> Result<(), KvError> {
        let answer = if self.prompt == prompt { Ok(tokens) } else { Err(KvError::OtherPrompt) };
        // A decode leg that was dropped needs no answer.
        let _ = self.answer.send(answer);
        answer.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn legs_meet_in_either_order_and_a_session_is_used_once() {
        let sessions = LegSessions::new(Duration::from_secs(30));
        for (room, decode_first) in [(1, true), (2, false)] {
            let early = decode_first.then(|| sessions.join(room, 7));
            let mut prefill_leg = sessions.open(room).unwrap();
            let joined = early.unwrap_or_else(|| sessions.join(room, 7));
            prefill_leg.decode_leg().await.unwrap().serve(7, 50).unwrap();
            assert_eq!(joined.await, Ok(50));
            assert_eq!(sessions.open(room).err(), Some(KvError::Used));
            assert_eq!(sessions.join(room, 7).await, Err(KvError::Used));
        }
        let mut prefill_leg = sessions.open(3).unwrap();
        let joined = sessions.join(3, 8);
        assert_eq!(prefill_leg.decode_leg().await.unwrap().serve(7, 50), Err(KvError::OtherPrompt));
        assert_eq!(joined.await, Err(KvError::OtherPrompt));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leg_without_its_peer_times_out() {
        let sessions = LegSessions::new(Duration::from_secs(30));
        assert_eq!(sessions.join(1, 7).await, Err(KvError::PeerTimeout));
        drop(sessions.open(3).unwrap());
        assert_eq!(sessions.join(3, 7).await, Err(KvError::PeerTimeout));
        assert_eq!(sessions.open(2).unwrap().decode_leg().await.err(), Some(KvError::PeerTimeout));
    }
}
