//! The messages on a data connection: small frames, and after an offer over TCP the bytes of its pages.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use baton_core::{PageId, PromptTimes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::auth::{Nonce, Proof};
use crate::fence::FenceMark;
use crate::layout::KvLayout;
use crate::memory::ShardAddress;
use crate::region::MemfdAddress;

pub(crate) const VERSION: u32 = 4;
/// More pages of a layer are offered in several pieces, so that what has arrived is noticed on slow connections, too.
pub(crate) const MAX_OFFER_PAGES: usize = 64;
/// An offer stays far below this.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Which pages of which engine a hand-off is for. Made by the receiver; a sender that does not know the key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReservationKey {
    pub id: u64,
    pub key: u64,
}

/// Where to hand over to. Travels through the router as an opaque string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvTarget {
    pub version: u32,
    pub address: SocketAddr,
    pub reservation: ReservationKey,
    pub layout: KvLayout,
    /// Weights, kernels, dtypes: KV of another id would be a wrong answer waiting to happen.
    pub numerics_id: String,
    pub page_tokens: u32,
    /// Token positions the receiver has room for: `[begin, end)`, `begin` on a page border.
    pub begin: u32,
    pub end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    Shm,
    Tcp,
}

/// The first message, from the receiver.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) nonce: Nonce,
}

/// A sender's first message: that it holds the deployment's secret.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) version: u32,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

/// A sender's second message: where its KV lies.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) shards: Vec<ShardAddress>,
    pub(crate) fences: MemfdAddress,
    /// Same machine, same boot: only then can a region address mean anything.
    pub(crate) host: String,
    pub(crate) shm_allowed: bool,
}

/// All that follows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToReceiver {
    Offer(Offer),
    /// All offers of this reservation were made.
    Finish {
        reservation: ReservationKey,
        times: PromptTimes,
    },
    /// There is nothing to send just now.
    Alive,
}

/// One layer of consecutive pages of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) reservation: ReservationKey,
    pub(crate) fence: FenceMark,
    pub(crate) layer: u32,
    /// Which page of the sequence `pages[0]` is.
    pub(crate) first_index: u32,
    /// The sender's pages.
    pub(crate) pages: Vec<PageId>,
    /// Per page, per sender shard, by the formula of [`mod@crate::checksum`].
    pub(crate) checksums: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSender {
    Challenge(Challenge),
    Welcome {
        transport: Transport,
        proof: Proof,
    },
    Refused {
        reason: String,
    },
    /// `damaged`: a block did not match its checksum.
    Taken {
        reservation: ReservationKey,
        bytes: u64,
        damaged: bool,
    },
    Finished {
        reservation: ReservationKey,
        verified_pages: u32,
    },
}

pub(crate) fn write_message(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&body);
    out.write_all(&frame)
}

/// `None` at the end of the connection.
pub(crate) fn read_message<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    read_bounded(input, MAX_MESSAGE_BYTES)
}

pub(crate) fn read_bounded<T: DeserializeOwned>(input: &mut impl Read, max_bytes: usize) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > max_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("message of {length} bytes")));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    postcard::from_bytes(&body).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Changes with every boot and differs between machines.
pub(crate) fn host_identity() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_an_error_not_a_panic() {
        for bytes in [&b"\x02\0\0\0\xff\xff"[..], b"\xff\xff\xff\xff", b"\x05\0\0\0ab", b"\x01\0\0\0\x09"] {
            assert!(read_message::<ToReceiver>(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
        assert!(read_message::<ToReceiver>(&mut &b""[..]).unwrap().is_none());
    }

    #[test]
    fn messages_come_back_as_they_went() {
        let offer = Offer {
            reservation: ReservationKey { id: 3, key: 9 },
            fence: FenceMark { slot: 1, generation: 7 },
            layer: 2,
            first_index: 5,
            pages: vec![PageId(8), PageId(2)],
            checksums: vec![1, u64::MAX],
        };
        let mut bytes = Vec::new();
        write_message(&mut bytes, &ToReceiver::Offer(offer.clone())).unwrap();
        let Some(ToReceiver::Offer(back)) = read_message(&mut &bytes[..]).unwrap() else { panic!("an offer") };
        assert_eq!(back, offer);
    }
}
