//! Server-sent events to chunks. Bytes arrive in any pieces; a chunk borrows from them, so a stream costs no allocations but
//! its buffer.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::record::{RequestFailure, ServerTimings};

/// A line longer than this is no chunk of a stream.
const MOST_LINE_BYTES: usize = 16 << 20;

const DATA: &[u8] = b"data:";

#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Up to here lines have been taken.
    taken: usize,
    /// Up to here there is no line end.
    searched: usize,
}

impl Lines {
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), RequestFailure> {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        if self.buffer.len() + bytes.len() > MOST_LINE_BYTES {
            return Err(RequestFailure::Malformed(format!("a line of more than {MOST_LINE_BYTES} bytes")));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether there is a `data:` line; comments, names of events and empty lines are passed over.
    pub(crate) fn has_next(&mut self) -> bool {
        while let Some(end) = self.line_end() {
            if self.buffer[self.taken..end].starts_with(DATA) {
                return true;
            }
            self.taken = end + 1;
            self.searched = self.taken;
        }
        false
    }

    /// What follows `data:`.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        if !self.has_next() {
            return None;
        }
        let (start, end) = (self.taken + DATA.len(), self.line_end()?);
        self.taken = end + 1;
        self.searched = self.taken;
        Some(self.buffer[start..end].trim_ascii())
    }

    fn line_end(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.buffer.len(), |at| self.searched + at);
        found.map(|_| self.searched)
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(crate) choices: FirstItem<ChunkChoice<'a>>,
    #[serde(default)]
    pub(crate) usage: Option<ChunkUsage>,
    #[serde(default)]
    pub(crate) timings: Option<ServerTimings>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(crate) struct ChunkChoice<'a> {
    /// Of a completion.
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    /// Of a chat.
    #[serde(borrow, default)]
    delta: Option<ChunkDelta<'a>>,
    #[serde(borrow, default)]
    pub(crate) finish_reason: Option<Text<'a>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct ChunkDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(default)]
    tool_calls: Option<IgnoredAny>,
}

/// Borrowed unless it has escapes. (An `Option<Cow>` alone would always own.)
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ChunkUsage {
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<ChunkPromptDetails>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct ChunkPromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl ChunkUsage {
    pub(crate) fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

impl<'a> Chunk<'a> {
    /// `None` for the line that ends a stream.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Option<Self>, RequestFailure> {
        if data == b"[DONE]" {
            return Ok(None);
        }
        let chunk: Self = serde_json::from_slice(data).map_err(|error| RequestFailure::Malformed(error.to_string()))?;
        match chunk.error {
            Some(error) => Err(RequestFailure::Event(error_message(&error))),
            None => Ok(Some(chunk)),
        }
    }
}

impl Chunk<'_> {
    /// Every choice of a completion's chunk counts as a token, even where a token has no text of its own; a chat also has chunks
    /// that only name the role or the end.
    pub(crate) fn has_tokens(&self) -> bool {
        let Some(choice) = &self.choices.0 else { return false };
        match &choice.delta {
            Some(delta) => delta.tool_calls.is_some() || !delta.text().is_empty(),
            None => choice.text.as_ref().is_some_and(|text| !text.is_empty() || choice.finish_reason.is_none()),
        }
    }

    pub(crate) fn text(&self) -> &str {
        let Some(choice) = &self.choices.0 else { return "" };
        choice.delta.as_ref().map_or_else(|| choice.text.as_deref().unwrap_or_default(), ChunkDelta::text)
    }
}

impl ChunkDelta<'_> {
    fn text(&self) -> &str {
        let content = self.content.as_deref().unwrap_or_default();
        if content.is_empty() { self.reasoning_content.as_deref().unwrap_or_default() } else { content }
    }
}

/// `{"error": {"message": …}}`, `{"error": "…"}` or anything else.
pub(crate) fn error_message(error: &serde_json::Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}

/// The first of a list; requests have one choice.
#[derive(Debug, PartialEq)]
pub(crate) struct FirstItem<T>(pub(crate) Option<T>);

impl<T> Default for FirstItem<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FirstItem<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = FirstItem<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<FirstItem<T>, A::Error> {
                let first = items.next_element()?;
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FirstItem(first))
            }
        }
        deserializer.deserialize_seq(Items(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(data: &str) -> Chunk<'_> {
        Chunk::parse(data.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn lines_in_pieces_of_any_size() {
        let stream = ": hello\nevent: x\ndata: {\"a\"}\r\n\r\ndata:[DONE]\n\ndata: cut";
        for size in 1..stream.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for bytes in stream.as_bytes().chunks(size) {
                lines.feed(bytes).unwrap();
                while let Some(line) = lines.next() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["{\"a\"}", "[DONE]"], "in pieces of {size}");
        }
    }

    #[test]
    fn which_chunks_carry_tokens() {
        for (data, tokens, text) in [
            (r#"{"choices": [{"text": "a\n"}]}"#, true, "a\n"),
            (r#"{"choices": [{"text": "", "finish_reason": null}]}"#, true, ""),
            (r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#, false, ""),
            (r#"{"choices": [{"text": "z", "finish_reason": "length"}]}"#, true, "z"),
            (r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#, false, ""),
            (r#"{"choices": [{"delta": {"content": "b"}}, {"delta": {"content": "c"}}]}"#, true, "b"),
            (r#"{"choices": [{"delta": {"content": null, "reasoning_content": "r"}}]}"#, true, "r"),
            (r#"{"choices": [{"delta": {"tool_calls": [{}]}}]}"#, true, ""),
            (r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#, false, ""),
            (r#"{"choices": [], "usage": {"prompt_tokens": 3}}"#, false, ""),
        ] {
            assert_eq!((chunk(data).has_tokens(), chunk(data).text()), (tokens, text), "{data}");
        }
    }

    #[test]
    fn plain_text_is_borrowed() {
        let data = r#"{"choices": [{"text": "plain"}]}"#;
        let Some(ChunkChoice { text: Some(text), .. }) = chunk(data).choices.0 else { panic!() };
        assert!(matches!(text, Text(Cow::Borrowed("plain"))));
    }

    #[test]
    fn usage_timings_and_errors() {
        let data = r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4,
                       "prompt_tokens_details": {"cached_tokens": 2}}, "timings": {"queue_ms": 1.5}}"#;
        let chunk = chunk(data);
        let usage = chunk.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (9, 4, 2));
        assert_eq!(chunk.timings.unwrap().queue_ms, 1.5);
        assert_eq!(Chunk::parse(b"[DONE]"), Ok(None));
        for (data, message) in [(r#"{"error": {"message": "m"}}"#, "m"), (r#"{"error": "e"}"#, "e")] {
            assert_eq!(Chunk::parse(data.as_bytes()), Err(RequestFailure::Event(message.into())));
        }
        assert!(matches!(Chunk::parse(b"nope"), Err(RequestFailure::Malformed(_))));
    }
}
