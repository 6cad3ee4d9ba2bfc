//! How a session begins: both sides prove that they know the secret, then the engine sends what it is.
//!
//! ```text
//!   router ── Hello { nonce } ──────▶ engine
//!          ◀── Challenge { nonce } ──
//!          ── Proof ────────────────▶
//!          ◀── Welcome { proof, info } or a refusal
//! ```

use std::time::Duration;

use baton_core::EngineInfo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::SessionError;
use crate::frame::{FrameLimits, read_frame};
use crate::message::{Challenge, Hello, Message, Proof, Welcome};
use crate::secret::{Nonce, Secret, Side};

/// Longest a peer may take for the whole handshake: four small frames.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The router's side.
pub(crate) async fn introduce(stream: &mut TcpStream, secret: &Secret) -> Result<EngineInfo, SessionError> {
    bounded(async {
        let ours = Nonce::random()?;
        send(stream, &Hello { nonce: ours }).await?;
        let theirs = match receive(stream).await? {
            Answer::Challenge(challenge) => challenge.nonce,
            Answer::Welcome(Welcome::Refused(reason)) => return Err(SessionError::Refused(reason)),
            Answer::Welcome(Welcome::Accepted { .. }) => return Err(SessionError::Impostor),
        };
        send(stream, &Proof(secret.proof(Side::Router, &ours, &theirs).into())).await?;
        match receive(stream).await? {
            // Hashes compare in constant time.
            Answer::Welcome(Welcome::Accepted { proof, info })
                if secret.proof(Side::Engine, &ours, &theirs) == blake3::Hash::from(proof.0) =>
            {
                Ok(*info)
            }
            Answer::Welcome(Welcome::Refused(reason)) => Err(SessionError::Refused(reason)),
            _ => Err(SessionError::Impostor),
        }
    })
    .await
}

/// The engine's side. A peer that is refused gets the reason, as far as it may know it.
pub(crate) async fn admit(stream: &mut TcpStream, secret: &Secret, info: EngineInfo) -> Result<(), SessionError> {
    bounded(async {
        let outcome = verify(stream, secret).await;
        let welcome = match &outcome {
            Ok(proof) => Welcome::Accepted { proof: Proof((*proof).into()), info: Box::new(info) },
            Err(error @ SessionError::Version { theirs, ours }) => {
                tracing::warn!(%error, "refused a router");
                Welcome::Refused(format!(
                    "this engine speaks version {ours} of the session protocol, the router speaks {theirs}"
                ))
            }
            Err(SessionError::Refused(reason)) => Welcome::Refused(reason.clone()),
            Err(_) => return outcome.map(drop),
        };
        send(stream, &welcome).await?;
        outcome.map(drop)
    })
    .await
}

async fn verify(stream: &mut TcpStream, secret: &Secret) -> Result<blake3::Hash, SessionError> {
    let hello: Hello = receive_one(stream).await?;
    let ours = Nonce::random()?;
    send(stream, &Challenge { nonce: ours }).await?;
    let Proof(proof) = receive_one(stream).await?;
    // Hashes compare in constant time.
    if secret.proof(Side::Router, &hello.nonce, &ours) != blake3::Hash::from(proof) {
        return Err(SessionError::Refused("wrong secret".into()));
    }
    Ok(secret.proof(Side::Engine, &hello.nonce, &ours))
}

enum Answer {
    Challenge(Challenge),
    Welcome(Welcome),
}

async fn receive(stream: &mut TcpStream) -> Result<Answer, SessionError> {
    let frame = read_frame(stream, FrameLimits::HANDSHAKE).await?.ok_or(SessionError::Closed)?;
    Ok(match frame.kind {
        Welcome::KIND => Answer::Welcome(Welcome::decode(frame)?),
        _ => Answer::Challenge(Challenge::decode(frame)?),
    })
}

async fn receive_one<M: Message>(stream: &mut TcpStream) -> Result<M, SessionError> {
    let frame = read_frame(stream, FrameLimits::HANDSHAKE).await?.ok_or(SessionError::Closed)?;
    Ok(M::decode(frame)?)
}

async fn send(stream: &mut TcpStream, message: &impl Message) -> Result<(), SessionError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes)?;
    Ok(stream.write_all(&bytes).await?)
}

async fn bounded<T>(handshake: impl Future<Output = Result<T, SessionError>>) -> Result<T, SessionError> {
    timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or(Err(SessionError::TimedOut(HANDSHAKE_TIMEOUT.as_secs())))
}
