//! Bytes ⇄ frames. Small typed headers and bulk data are apart, so that a prompt is never walked element by element.
//!
//! ```text
//!   0        4         5      6          8            12          16
//!   | "BATN" | version | kind | 0      0 | header len | bulk len  | header … | bulk … |
//! ```
//!
//! Numbers are little-endian. The first sixteen bytes keep their form in every version: that is how two versions can tell
//! each other that they do not match.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::{FrameError, SessionError};

pub(crate) const MAGIC: [u8; 4] = *b"BATN";
/// Distinguishes a session from HTTP on the same port: no HTTP method in use begins with it.
pub const FIRST_BYTE: u8 = MAGIC[0];
pub(crate) const VERSION: u8 = 4;
pub(crate) const PREFIX_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    Command = 5,
    Reply = 6,
    Heartbeat = 7,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Challenge => "challenge",
            Self::Proof => "proof",
            Self::Welcome => "welcome",
            Self::Command => "command",
            Self::Reply => "reply",
            Self::Heartbeat => "heartbeat",
        }
    }
}

impl TryFrom<u8> for Kind {
    type Error = FrameError;

    fn try_from(byte: u8) -> Result<Self, FrameError> {
        use Kind::{Challenge, Command, Heartbeat, Hello, Proof, Reply, Welcome};
        [Hello, Challenge, Proof, Welcome, Command, Reply, Heartbeat]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
            .ok_or(FrameError::Kind(byte))
    }
}

/// How large a frame the reader is willing to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimits {
    pub(crate) header_bytes: usize,
    pub(crate) bulk_bytes: usize,
}

impl FrameLimits {
    /// Before the peer has shown that it knows the secret.
    pub(crate) const HANDSHAKE: Self = Self { header_bytes: 4 << 10, bulk_bytes: 0 };
    /// A header of this size holds the log-probabilities of a 128k-token prompt with 20 alternatives each; a bulk part
    /// sixteen million prompt tokens.
    pub(crate) const SESSION: Self = Self { header_bytes: 64 << 20, bulk_bytes: 64 << 20 };

    fn check(self, header: usize, bulk: usize) -> Result<(), FrameError> {
        for (part, len, max) in [("header", header, self.header_bytes), ("bulk part", bulk, self.bulk_bytes)] {
            if len > max {
                return Err(FrameError::TooLong { part, len, max });
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) header: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

impl Frame {
    pub(crate) fn expect(self, wanted: Kind) -> Result<Self, FrameError> {
        if self.kind == wanted {
            return Ok(self);
        }
        Err(FrameError::Unexpected { wanted: wanted.name(), got: self.kind.name() })
    }
}

/// Appends a frame to `out`; leaves `out` as it was when the frame is too long to be accepted by the peer.
pub(crate) fn write_frame(
    out: &mut Vec<u8>,
    kind: Kind,
    header: &[u8],
    bulk: impl ExactSizeIterator<Item = u32>,
) -> Result<(), FrameError> {
    let bulk_bytes = bulk.len() * size_of::<u32>();
    FrameLimits::SESSION.check(header.len(), bulk_bytes)?;
    out.reserve(PREFIX_BYTES + header.len() + bulk_bytes);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind as u8, 0, 0]);
    out.extend_from_slice(&(header.len() as u32).to_le_bytes());
    out.extend_from_slice(&(bulk_bytes as u32).to_le_bytes());
    out.extend_from_slice(header);
    bulk.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    Ok(())
}

/// `None` when the stream ends before a frame's first byte.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    limits: FrameLimits,
) -> Result<Option<Frame>, SessionError> {
    let mut prefix = [0; PREFIX_BYTES];
    if stream.read(&mut prefix[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut prefix[1..]).await.map_err(closed_inside)?;
    let [m0, m1, m2, m3, version, kind, r0, r1, h0, h1, h2, h3, b0, b1, b2, b3] = prefix;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(FrameError::Magic([m0, m1, m2, m3]).into());
    }
    if version != VERSION {
        return Err(SessionError::Version { ours: VERSION, theirs: version });
    }
    let kind = Kind::try_from(kind)?;
    if [r0, r1] != [0, 0] {
        return Err(FrameError::Reserved.into());
    }
    let header_len = u32::from_le_bytes([h0, h1, h2, h3]) as usize;
    let bulk_len = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
    limits.check(header_len, bulk_len)?;
    let header = read_part(stream, header_len).await?;
    let bulk = read_part(stream, bulk_len).await?;
    Ok(Some(Frame { kind, header, bulk }))
}

/// The buffer grows with what arrives, not with what the prefix promised.
async fn read_part(stream: &mut (impl AsyncRead + Unpin), len: usize) -> Result<Vec<u8>, SessionError> {
    let mut part = Vec::with_capacity(len.min(64 << 10));
    stream.take(len as u64).read_to_end(&mut part).await?;
    if part.len() < len {
        return Err(FrameError::Truncated { got: part.len(), wanted: len }.into());
    }
    Ok(part)
}

fn closed_inside(error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SessionError::Closed,
        _ => SessionError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_bytes(kind: Kind, header: &[u8], bulk: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, kind, header, bulk.iter().copied()).unwrap();
        bytes
    }

    async fn read_all(mut bytes: &[u8]) -> Result<Vec<Frame>, SessionError> {
        let mut frames = Vec::new();
        while let Some(frame) = read_frame(&mut bytes, FrameLimits { header_bytes: 64, bulk_bytes: 64 }).await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn the_wire_form_is_fixed() {
        let bytes = frame_bytes(Kind::Command, b"hd", &[1, 0x0403_0201]);
        assert_eq!(bytes, b"BATN\x04\x05\0\0\x02\0\0\0\x08\0\0\0hd\x01\0\0\0\x01\x02\x03\x04");
        let frame = Frame { kind: Kind::Command, header: b"hd".to_vec(), bulk: b"\x01\0\0\0\x01\x02\x03\x04".to_vec() };
        assert_eq!(read_all(&bytes).await.unwrap(), [frame]);
    }

    #[tokio::test]
    async fn malformed_bytes_are_typed_errors() {
        let cases: [(&[u8], &str); 10] = [
            (b"GET / HTTP/1.1\r\n\r\n", "malformed frame: starts with [47, 45, 54, 20], not with a frame's magic"),
            (b"B", "the peer closed the connection"),
            (b"BATN\x04\x05\0\0\0\0\0\0\0\0\0", "the peer closed the connection"),
            (
                b"BATN\x05\x05\0\0\0\0\0\0\0\0\0\0",
                "the peer speaks version 5 of the session protocol, this side speaks 4",
            ),
            (b"BATN\x04\x00\0\0\0\0\0\0\0\0\0\0", "malformed frame: unknown kind 0"),
            (b"BATN\x04\x08\0\0\0\0\0\0\0\0\0\0", "malformed frame: unknown kind 8"),
            (b"BATN\x04\x05\0\x01\0\0\0\0\0\0\0\0", "malformed frame: reserved bytes are not zero"),
            (b"BATN\x04\x05\0\0\x41\0\0\0\0\0\0\0", "malformed frame: header of 65 bytes, at most 64 are allowed"),
            (
                b"BATN\x04\x05\0\0\0\0\0\0\xff\xff\xff\xff",
                "malformed frame: bulk part of 4294967295 bytes, at most 64 are allowed",
            ),
            (b"BATN\x04\x05\0\0\x04\0\0\0\0\0\0\0ab", "malformed frame: ends after 2 of 4 bytes"),
        ];
        for (bytes, message) in cases {
            assert_eq!(read_all(bytes).await.unwrap_err().to_string(), message, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn every_single_byte_change_of_a_prefix_is_survived() {
        let bytes = frame_bytes(Kind::Reply, b"header", &[7, 8, 9]);
        for position in 0..PREFIX_BYTES {
            for value in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[position] = value;
                let read = read_all(&changed).await;
                let harmless = value == bytes[position] || (position == 5 && (1..=7).contains(&value));
                assert_eq!(read.is_ok(), harmless, "byte {position} = {value}: {read:?}");
            }
        }
    }
}
