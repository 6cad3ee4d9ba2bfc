//! How one vocabulary entry becomes bytes: the `decoder` of a tokenizer.json, where it works token by token.

use serde_json::Value;

use crate::TextError;
use crate::bpe::{SPACE, fallback_byte};

/// A decoder that treats every token independently of its neighbours, except for spaces at the start of a text.
#[derive(Debug, Default)]
pub(crate) struct TokenDecoder {
    steps: Vec<DecodeStep>,
    /// How many spaces a text loses at its start: SentencePiece adds one before the first word.
    pub(crate) leading_spaces: usize,
}

#[derive(Debug)]
enum DecodeStep {
    /// Every character stands for a byte (GPT-2's alphabet).
    ByteLevel,
    Replace {
        from: String,
        to: String,
    },
    /// `<0x0A>` is the byte 0x0A.
    ByteFallback,
}

impl TokenDecoder {
    pub(crate) fn from_json(file: &'static str, decoder: &Value) -> Result<Self, TextError> {
        let mut this = Self::default();
        this.add(decoder)
            .map_err(|unsupported| TextError::file(file, format!("field decoder: {unsupported} is not supported")))?;
        Ok(this)
    }

    pub(crate) fn byte_level() -> Self {
        Self { steps: vec![DecodeStep::ByteLevel], leading_spaces: 0 }
    }

    pub(crate) fn sentencepiece(leading_spaces: usize) -> Self {
        let spaces = DecodeStep::Replace { from: SPACE.to_string(), to: " ".to_owned() };
        Self { steps: vec![spaces, DecodeStep::ByteFallback], leading_spaces }
    }

    /// Returns the part that is not supported as the error.
    fn add<'a>(&mut self, decoder: &'a Value) -> Result<(), &'a Value> {
        let text = |field: &str| decoder[field].as_str().map(str::to_owned);
        let count = |field: &str| decoder[field].as_u64().unwrap_or(0) as usize;
        match (decoder["type"].as_str(), &decoder["decoders"]) {
            (Some("Sequence"), Value::Array(decoders)) => decoders.iter().try_for_each(|inner| self.add(inner))?,
            (Some("ByteLevel"), _) => self.steps.push(DecodeStep::ByteLevel),
            (Some("ByteFallback"), _) => self.steps.push(DecodeStep::ByteFallback),
            (Some("Fuse"), _) => {}
            (Some("Replace"), _) => {
                let from = decoder["pattern"]["String"].as_str().ok_or(decoder)?;
                self.steps.push(DecodeStep::Replace { from: from.to_owned(), to: text("content").unwrap_or_default() });
            }
            (Some("Strip"), _) if text("content").as_deref() == Some(" ") && count("stop") == 0 => {
                self.leading_spaces += count("start");
            }
            (Some("Metaspace"), _) => {
                let from = text("replacement").unwrap_or_else(|| "▁".to_owned());
                self.steps.push(DecodeStep::Replace { from, to: " ".to_owned() });
                let never =
                    text("prepend_scheme").map_or(decoder["add_prefix_space"] == false, |scheme| scheme == "never");
                self.leading_spaces += usize::from(!never);
            }
            _ => return Err(decoder),
        }
        Ok(())
    }

    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let mut text = token.to_owned();
        for step in &self.steps {
            match step {
                DecodeStep::Replace { from, to } => text = text.replace(from.as_str(), to),
                DecodeStep::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return vec![byte];
                    }
                }
                DecodeStep::ByteLevel => {
                    if let Some(bytes) = text.chars().map(byte_of_char).collect() {
                        return bytes;
                    }
                }
            }
        }
        text.into_bytes()
    }
}

/// The inverse of GPT-2's printable alphabet: printable Latin-1 stands for itself, the other 68 bytes, in ascending order,
/// for U+0100 and up.
pub(crate) fn byte_of_char(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_byte_alphabet_has_every_byte_once() {
        let bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of_char).collect();
        assert_eq!(bytes.len(), 256);
        assert_eq!(bytes.iter().collect::<BTreeSet<_>>().len(), 256);
        assert_eq!((byte_of_char('Ġ'), byte_of_char('Ċ'), byte_of_char(' ')), (Some(b' '), Some(b'\n'), None));
    }

    #[test]
    fn tokens_become_bytes() {
        let byte_level = json!({"type": "ByteLevel"});
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
        let table: [(&Value, usize, &str, &[u8]); 8] = [
            (&byte_level, 0, "Ġcat", b" cat"),
            (&byte_level, 0, "Ã", b"\xc3"),
            (&byte_level, 0, "日", "日".as_bytes()),
            (&llama, 1, "▁▁cat", b"  cat"),
            (&llama, 1, "<0xE2>", b"\xe2"),
            (&llama, 1, "<0xE>", b"<0xE>"),
            (&metaspace, 1, "▁a▁b", b" a b"),
            (&json!({"type": "Metaspace", "prepend_scheme": "never"}), 0, "▁a", b" a"),
        ];
        for (decoder, leading_spaces, token, bytes) in table {
            let decoder = TokenDecoder::from_json("tokenizer.json", decoder).unwrap();
            assert_eq!((decoder.bytes(token).as_slice(), decoder.leading_spaces), (bytes, leading_spaces), "{token}");
        }
    }

    #[test]
    fn what_cannot_work_token_by_token_is_refused_by_name() {
        for decoder in [json!(null), json!({"type": "WordPiece"}), json!({"type": "Strip", "content": " ", "stop": 1})]
        {
            let error = TokenDecoder::from_json("tokenizer.json", &decoder).unwrap_err().to_string();
            assert!(error.starts_with("tokenizer.json: field decoder"), "{error}");
        }
    }
}
