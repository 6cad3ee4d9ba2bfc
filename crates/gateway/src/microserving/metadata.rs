//! `kv_append_metadata`: what a receiving engine sends to a sending one, through a router that need not understand it.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use baton_core::{PAGE_TOKENS, TokenRange};
use baton_protocol::{Destination, Sent};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;

/// So that something else is not taken for another version of it.
const MAGIC: [u8; 4] = *b"BTKV";
const VERSION: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Metadata {
    version: u32,
    /// Of the receiver. Text means the same to both engines only if they cut it the same way.
    tokenizer: String,
    matched: u32,
    end: u32,
    /// In the fabric's words: address, layout, page size, numerics, and a hash of the prompt.
    target: Vec<u8>,
}

impl Metadata {
    pub(super) fn new(tokenizer: &str, to: &Destination) -> Self {
        let (matched, end, target) = (to.matched, to.end, to.target.to_vec());
        Self { version: VERSION, tokenizer: tokenizer.to_owned(), matched, end, target }
    }

    pub(super) fn to_text(&self) -> Result<String, ApiError> {
        let bytes = postcard::to_extend(self, MAGIC.to_vec()).map_err(|error| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the metadata could not be written: {error}"))
        })?;
        Ok(BASE64.encode(&bytes))
    }

    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let wrong = || ApiError::invalid("kv_addr_info", "kv_addr_info is not a kv_append_metadata of prep_recv");
        let bytes = BASE64.decode(text).map_err(|_| wrong())?;
        let fields = bytes.strip_prefix(&MAGIC).ok_or_else(wrong)?;
        let (version, _) = postcard::take_from_bytes::<u32>(fields).map_err(|_| wrong())?;
        if version != VERSION {
            return Err(conflict(format!(
                "the receiver writes version {version} of kv_addr_info, here {VERSION} is read"
            )));
        }
        postcard::from_bytes(fields).map_err(|_| wrong())
    }

    /// The engine compares all else.
    pub(super) fn check_tokenizer(&self, ours: &str) -> Result<(), ApiError> {
        if self.tokenizer == ours {
            return Ok(());
        }
        Err(conflict(format!("tokenizers differ: ours {ours}, the receiver's {}", self.tokenizer)))
    }

    /// Of `range` the receiver should have taken something, and has taken nothing.
    pub(super) fn check_taken(&self, range: TokenRange, sent: Sent) -> Result<(), ApiError> {
        // A page that is filled neither whole nor to the end of the receiver's room is not sent.
        let sent_end = match range.end() {
            end if end >= self.end => self.end,
            end => end - end % PAGE_TOKENS as u32,
        };
        // What is not connected to what the receiver has cannot be counted.
        let counts = range.begin() <= self.matched && sent_end > self.matched;
        if counts && range.begin() + sent.verified_tokens <= self.matched {
            let message = "the receiver has taken none of it: its reservation is used up or has run out";
            return Err(conflict(message.to_owned()));
        }
        Ok(())
    }

    pub(super) fn destination(&self) -> Destination {
        Destination { matched: self.matched, end: self.end, target: self.target.as_slice().into() }
    }
}

fn conflict(message: String) -> ApiError {
    ApiError { status: StatusCode::CONFLICT, ..ApiError::invalid("kv_addr_info", message) }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn metadata(matched: u32, end: u32) -> Metadata {
        Metadata::new("t", &Destination { matched, end, target: [7, 8].into() })
    }

    #[test]
    fn it_survives_the_router() {
        let text = metadata(32, 99).to_text().unwrap();
        assert_eq!(Metadata::parse(&text).unwrap(), metadata(32, 99));
        for text in ["", "AAAA", "====", "not base64", "////////", &text[4..], &text[..text.len() - 4]] {
            let error = Metadata::parse(text).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.param.as_deref()),
                (400, Some("kv_addr_info")),
                "{text}: {error:?}"
            );
        }
        let newer = Metadata { version: 2, ..metadata(0, 1) }.to_text().unwrap();
        let error = Metadata::parse(&newer).unwrap_err();
        assert!(error.status == 409 && error.message.contains("version 2"), "{error:?}");
    }

    #[test]
    fn nothing_taken_is_noticed_where_it_can_be() {
        // (matched, end), (sent), verified → accepted
        let cases = [
            ((0, 99), (0, 99), 99, true),
            ((0, 99), (0, 99), 32, true),
            ((0, 99), (0, 99), 0, false),
            ((64, 99), (0, 99), 64, false),
            ((64, 99), (64, 99), 0, false),
            ((64, 99), (0, 99), 96, true),
            // Nothing was to be sent.
            ((96, 96), (96, 96), 0, true),
            ((0, 0), (0, 0), 0, true),
            ((0, 99), (0, 20), 0, true),
            ((64, 99), (0, 64), 64, true),
            // Another engine sends what is before it.
            ((0, 99), (64, 99), 0, true),
        ];
        for ((matched, end), (from, to), verified_tokens, taken) in cases {
            let range = TokenRange::new(from, to).unwrap();
            let checked = metadata(matched, end).check_taken(range, Sent { verified_tokens });
            assert_eq!(checked.is_ok(), taken, "{range} of {verified_tokens} into [{matched}, {end})");
        }
    }
}
