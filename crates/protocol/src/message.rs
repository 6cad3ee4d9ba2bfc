//! Frames ⇄ what they mean: headers are postcard, a prompt is the bulk part.

use std::sync::Arc;

use baton_core::{EngineInfo, TokenId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::frame::{Frame, Kind, write_frame};
use crate::secret::Nonce;
use crate::{Command, StepReply};

/// A type that is one kind of frame and needs no bulk part.
pub(crate) trait Message: Serialize + DeserializeOwned {
    const KIND: Kind;

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        write_frame(out, Self::KIND, &header(self)?, [].into_iter())
    }

    fn decode(frame: Frame) -> Result<Self, FrameError> {
        let frame = frame.expect(Self::KIND)?;
        no_bulk(&frame)?;
        parse(&frame.header)
    }
}

/// Router → engine, first of all.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) nonce: Nonce,
}

/// Engine → router: show that you know the secret.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) nonce: Nonce,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proof(pub(crate) [u8; 32]);

/// Engine → router, last of the handshake. Goes out as the answer to another version's hello too.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Refused(String),
    Accepted { proof: Proof, info: Box<EngineInfo> },
}

impl Message for Hello {
    const KIND: Kind = Kind::Hello;
}

impl Message for Challenge {
    const KIND: Kind = Kind::Challenge;
}

impl Message for Proof {
    const KIND: Kind = Kind::Proof;
}

impl Message for Welcome {
    const KIND: Kind = Kind::Welcome;
}

impl Message for StepReply {
    const KIND: Kind = Kind::Reply;
}

impl Command {
    pub(crate) fn encode(mut self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let prompt = self.prompt_mut().map_or_else(|| Arc::from([]), std::mem::take);
        let bulk: &[TokenId] = if self.refers_to_prompt() { &[] } else { &prompt };
        write_frame(out, Kind::Command, &header(&self)?, bulk.iter().map(|token| token.0))
    }

    pub(crate) fn decode(frame: Frame) -> Result<Self, FrameError> {
        let frame = frame.expect(Kind::Command)?;
        let mut command: Self = parse(&frame.header)?;
        if command.refers_to_prompt() {
            no_bulk(&frame)?;
        }
        let Some(prompt) = command.prompt_mut() else {
            no_bulk(&frame)?;
            return Ok(command);
        };
        let (tokens, rest) = frame.bulk.as_chunks();
        if !rest.is_empty() {
            return Err(FrameError::Bulk(frame.bulk.len()));
        }
        *prompt = tokens.iter().map(|bytes| TokenId(u32::from_le_bytes(*bytes))).collect();
        Ok(command)
    }

    /// What travels as the bulk part.
    fn prompt_mut(&mut self) -> Option<&mut Arc<[TokenId]>> {
        match self {
            Self::PrepRecv(call) => Some(&mut call.prompt),
            Self::RemoteSend(call) => Some(&mut call.prompt),
            Self::Generate { request, .. } => Some(&mut request.prompt),
            Self::Release(_) | Self::Abort(_) | Self::AbortChoice { .. } | Self::FollowCache => None,
        }
    }

    /// The engine has the prompt already, with the reservation.
    fn refers_to_prompt(&self) -> bool {
        matches!(self, Self::Generate { reservation: Some(_), .. })
    }
}

fn header(value: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    postcard::to_stdvec(value).map_err(|error| FrameError::Header(error.to_string()))
}

fn parse<T: DeserializeOwned>(header: &[u8]) -> Result<T, FrameError> {
    let (value, rest) = postcard::take_from_bytes(header).map_err(|error| FrameError::Header(error.to_string()))?;
    if !rest.is_empty() {
        return Err(FrameError::Header(format!("{} bytes too many", rest.len())));
    }
    Ok(value)
}

fn no_bulk(frame: &Frame) -> Result<(), FrameError> {
    if frame.bulk.is_empty() { Ok(()) } else { Err(FrameError::Bulk(frame.bulk.len())) }
}

#[cfg(test)]
mod tests {
    use baton_core::{
        AdapterId, Attempt, Choice, GenerateRequest, Limits, Pooling, RequestId, ReservationId, SamplingParams,
        TokenRange,
    };

    use super::*;
    use crate::frame::{FrameLimits, PREFIX_BYTES, read_frame};
    use crate::{PrepRecv, RemoteSend};

    fn request() -> GenerateRequest {
        GenerateRequest {
            id: RequestId(3),
            attempt: Attempt(1),
            prompt: [1, 70_000, u32::MAX].map(TokenId).into(),
            outputs: vec![vec![TokenId(5)], vec![]],
            ended: vec![true, false],
            sampling: SamplingParams { logit_bias: vec![(TokenId(2), -1.5)], ..SamplingParams::greedy() },
            limits: Limits { max_tokens: 9, min_tokens: 0, stop_tokens: vec![TokenId(0)] },
            logprobs: Some(2),
            prompt_logprobs: None,
            adapter: Some(AdapterId(9)),
            pooling: Some(Pooling::Mean),
            affinity: None,
        }
    }

    fn generate() -> Command {
        Command::Generate { request: Box::new(request()), reservation: None }
    }

    fn commands() -> [Command; 7] {
        let GenerateRequest { id: request, attempt, prompt, adapter, .. } = request();
        let prep_recv =
            PrepRecv { request, attempt, prompt: Arc::clone(&prompt), adapter, end: 2, lease_ms: Some(500) };
        let range = TokenRange::up_to(2);
        let remote_send = RemoteSend { request, attempt, prompt, adapter, range, target: vec![0, 255] };
        [
            generate(),
            Command::PrepRecv(Box::new(prep_recv)),
            Command::RemoteSend(Box::new(remote_send)),
            Command::Release(ReservationId(u64::MAX)),
            Command::Abort(RequestId(u64::MAX)),
            Command::AbortChoice { request: RequestId(3), choice: Choice(127) },
            Command::FollowCache,
        ]
    }

    async fn frame_of(command: Command) -> Frame {
        let mut bytes = Vec::new();
        command.encode(&mut bytes).unwrap();
        read_frame(&mut bytes.as_slice(), FrameLimits::SESSION).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn commands_survive_the_wire() {
        for command in commands() {
            assert_eq!(Command::decode(frame_of(command.clone()).await).unwrap(), command);
        }
    }

    #[tokio::test]
    async fn with_a_reservation_the_prompt_is_not_sent_again() {
        let reservation = Some(ReservationId(7));
        let mut frame = frame_of(Command::Generate { request: Box::new(request()), reservation }).await;
        assert_eq!(frame.bulk, []);
        let referring = GenerateRequest { prompt: Arc::from([]), ..request() };
        let wanted = Command::Generate { request: Box::new(referring), reservation };
        assert_eq!(
            Command::decode(Frame { header: frame.header.clone(), ..frame_of(wanted.clone()).await }),
            Ok(wanted)
        );
        frame.bulk = vec![0; 4];
        assert_eq!(Command::decode(frame), Err(FrameError::Bulk(4)));
    }

    #[tokio::test]
    async fn the_prompt_travels_as_little_endian_words() {
        let frame = frame_of(generate()).await;
        assert_eq!(frame.bulk, [1, 0, 0, 0, 0x70, 0x11, 1, 0, 255, 255, 255, 255]);
        assert!(frame.header.len() < 128 - PREFIX_BYTES, "{} bytes", frame.header.len());
    }

    #[tokio::test]
    async fn damaged_headers_are_errors_or_other_commands_never_panics() {
        for command in commands() {
            damage(&frame_of(command).await);
        }
    }

    fn damage(frame: &Frame) {
        let decode = |header: Vec<u8>| Command::decode(Frame { kind: Kind::Command, header, bulk: frame.bulk.clone() });
        for cut in 0..frame.header.len() {
            assert!(decode(frame.header[..cut].to_vec()).is_err(), "cut at {cut}");
        }
        for position in 0..frame.header.len() {
            for value in 0..=u8::MAX {
                let mut header = frame.header.clone();
                header[position] = value;
                let _may_be_another_valid_command = decode(header);
            }
        }
        let mut longer = frame.header.clone();
        longer.push(0);
        assert_eq!(decode(longer).unwrap_err(), FrameError::Header("1 bytes too many".into()));
    }

    #[tokio::test]
    async fn bulk_parts_must_fit_their_command() {
        let mut odd = frame_of(generate()).await;
        odd.bulk.pop();
        assert_eq!(Command::decode(odd).unwrap_err(), FrameError::Bulk(11));
        let mut abort = frame_of(Command::Abort(RequestId(1))).await;
        abort.bulk.push(0);
        assert_eq!(Command::decode(abort).unwrap_err(), FrameError::Bulk(1));
        let reply = Frame { kind: Kind::Reply, header: vec![], bulk: vec![] };
        assert!(matches!(Command::decode(reply), Err(FrameError::Unexpected { wanted: "command", got: "reply" })));
    }
}
