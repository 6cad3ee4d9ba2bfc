//! Replay of a public trace: one JSON object per line with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, one
//! id per block of 512 tokens. Equal ids are equal blocks, so the prefixes that users really shared are shared again.
//! <https://github.com/kvcache-ai/Mooncake>

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{Chat, ChatTurn, TextId, TextKind, TextPart};
use crate::error::BenchError;

const BLOCK_TOKENS: u32 = 512;

#[derive(Clone, Debug, Deserialize)]
struct TraceLine {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct TraceScale {
    /// 2 replays an hour in half an hour.
    pub speed: f64,
    /// 0.1 makes prompts and answers a tenth as long. Blocks shrink alike, so what was shared stays shared.
    pub length: f64,
}

#[derive(Clone, Debug)]
pub struct Trace {
    lines: Vec<TraceLine>,
    scale: TraceScale,
}

impl Trace {
    pub fn open(path: &Path, scale: TraceScale) -> Result<Self, BenchError> {
        let file = std::fs::File::open(path).map_err(|error| BenchError::file(path, error))?;
        Self::read(std::io::BufReader::new(file), scale).map_err(|error| BenchError::file(path, error))
    }

    fn read(input: impl BufRead, scale: TraceScale) -> Result<Self, String> {
        let mut lines = Vec::new();
        for (at, text) in input.lines().enumerate() {
            let text = text.map_err(|error| error.to_string())?;
            if text.trim().is_empty() {
                continue;
            }
            let line: TraceLine = serde_json::from_str(&text).map_err(|error| format!("line {}: {error}", at + 1))?;
            line.check().map_err(|error| format!("line {}: {error}", at + 1))?;
            lines.push(line);
        }
        if lines.is_empty() {
            return Err("there are no requests in it".into());
        }
        lines.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
        Ok(Self { lines, scale })
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// In the order of their times.
    pub fn chats(&self) -> impl Iterator<Item = Chat> {
        (0..).map_while(|number| self.chat(number))
    }

    pub(crate) fn chat(&self, number: u64) -> Option<Chat> {
        let line = self.lines.get(usize::try_from(number).ok()?)?;
        let at_s = (line.timestamp - self.lines[0].timestamp) / 1e3 / self.scale.speed;
        Some(Chat { at: Duration::try_from_secs_f64(at_s).ok(), turns: vec![line.turn(self.scale.length)] })
    }
}

impl TraceLine {
    fn check(&self) -> Result<(), String> {
        if self.input_length == 0 || self.output_length == 0 || !self.timestamp.is_finite() {
            return Err("input_length and output_length must be at least 1, timestamp a number".into());
        }
        let blocks = self.input_length.div_ceil(BLOCK_TOKENS) as usize;
        if self.hash_ids.len() == blocks {
            return Ok(());
        }
        Err(format!(
            "{} tokens are {blocks} blocks of {BLOCK_TOKENS}, but hash_ids has {}",
            self.input_length,
            self.hash_ids.len()
        ))
    }

    fn turn(&self, scale: f64) -> ChatTurn {
        let scaled = |tokens: u32| ((f64::from(tokens) * scale).round() as u32).max(1);
        let block = scaled(BLOCK_TOKENS);
        let last = self.input_length - (self.hash_ids.len() as u32 - 1) * BLOCK_TOKENS;
        let mut user: Vec<_> = self
            .hash_ids
            .iter()
            .map(|id| TextPart { text: TextId::new(TextKind::Block, *id, 0), tokens: block })
            .collect();
        if let Some(piece) = user.last_mut() {
            piece.tokens = scaled(last);
        }
        // Never read: a request of a trace is the only turn of its chat.
        let answer = TextPart { text: TextId::new(TextKind::Answer, 0, 0), tokens: 0 };
        ChatTurn { user, output_tokens: scaled(self.output_length), answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"timestamp": 1000, "input_length": 600, "output_length": 50, "hash_ids": [7, 8]}
{"timestamp": 4000, "input_length": 1024, "output_length": 1, "hash_ids": [7, 9]}
"#;

    fn read(text: &str, speed: f64, length: f64) -> Result<Vec<Chat>, String> {
        Trace::read(text.as_bytes(), TraceScale { speed, length }).map(|trace| trace.chats().collect())
    }

    #[test]
    fn blocks_are_shared_at_any_scale() {
        for (length, block, inputs, outputs) in [(1.0, 512, [600, 1024], [50, 1]), (0.1, 51, [60, 102], [5, 1])] {
            let chats = read(TEXT, 1.0, length).unwrap();
            let turns: Vec<_> = chats.iter().map(|chat| &chat.turns[0]).collect();
            assert_eq!(turns[0].user[0], turns[1].user[0]);
            assert_eq!(turns[0].user[0].tokens, block);
            assert_eq!([turns[0].user_tokens(), turns[1].user_tokens()], inputs);
            assert_eq!([turns[0].output_tokens, turns[1].output_tokens], outputs);
        }
    }

    #[test]
    fn time_begins_with_the_first_request() {
        let chats = read(TEXT, 2.0, 1.0).unwrap();
        assert_eq!(chats.iter().map(|chat| chat.at.unwrap().as_millis()).collect::<Vec<_>>(), [0, 1500]);
    }

    #[test]
    fn mistakes_name_their_line() {
        let wrong = TEXT.replace("[7, 9]", "[7]");
        assert!(read(&wrong, 1.0, 1.0).unwrap_err().starts_with("line 2: 1024 tokens are 2 blocks"));
        assert!(read("{\n", 1.0, 1.0).unwrap_err().starts_with("line 1: "));
        assert!(read("", 1.0, 1.0).is_err());
    }
}
