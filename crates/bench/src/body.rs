//! A turn of a chat to the bytes of a request, in the dialect the server understands.

use std::io::Write;
use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::random::Random;
use crate::workload::{Chat, TextPart};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestApi {
    Completions,
    Chat,
}

impl RequestApi {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Completions => "/completions",
            Self::Chat => "/chat/completions",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PromptForm {
    /// Token ids in this range: lengths are exact.
    Ids(Range<u32>),
    /// Common words, which most tokenizers take for a token each.
    Text,
}

/// What the server takes.
#[derive(Clone, Debug)]
pub(crate) struct RequestDialect {
    pub(crate) api: RequestApi,
    pub(crate) prompt: PromptForm,
    pub(crate) model: Option<String>,
    /// Answers have the requested length, whatever the model would like.
    pub(crate) ignore_eos: bool,
    /// `stream_options`, so that the server counts the tokens.
    pub(crate) usage: bool,
    /// Fields the user adds or replaces.
    pub(crate) extra: Map<String, Value>,
    pub(crate) seed: u64,
}

impl RequestDialect {
    pub(crate) fn body(&self, chat: &Chat, turn: usize) -> Bytes {
        let mut out = Vec::new();
        out.push(b'{');
        match self.api {
            RequestApi::Completions => self.write_prompt(chat, turn, &mut out),
            RequestApi::Chat => self.write_messages(chat, turn, &mut out),
        }
        for (name, value) in self.fields(chat.turns[turn].output_tokens) {
            out.push(b',');
            json(&mut out, &name);
            out.push(b':');
            json(&mut out, &value);
        }
        out.push(b'}');
        out.into()
    }

    /// All but the prompt.
    fn fields(&self, output_tokens: u32) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some(model) = &self.model {
            fields.insert("model".into(), model.as_str().into());
        }
        fields.insert("max_tokens".into(), output_tokens.into());
        fields.insert("temperature".into(), 0.into());
        fields.insert("stream".into(), true.into());
        if self.usage {
            fields.insert("stream_options".into(), serde_json::json!({"include_usage": true}));
        }
        if self.ignore_eos {
            fields.insert("ignore_eos".into(), true.into());
        }
        fields.extend(self.extra.clone());
        fields
    }

    fn write_prompt(&self, chat: &Chat, turn: usize, out: &mut Vec<u8>) {
        let pieces = messages(chat, turn).flat_map(|(_, pieces)| pieces);
        out.extend_from_slice(b"\"prompt\":");
        match &self.prompt {
            PromptForm::Ids(range) => self.write_ids(pieces, range, out),
            PromptForm::Text => self.write_words(pieces, out),
        }
    }

    fn write_messages(&self, chat: &Chat, turn: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"messages\":[");
        for (at, (role, pieces)) in messages(chat, turn).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"role\":");
            json(out, &role);
            out.extend_from_slice(b",\"content\":");
            self.write_words(pieces, out);
            out.push(b'}');
        }
        out.push(b']');
    }

    fn write_ids<'a>(&self, pieces: impl IntoIterator<Item = &'a TextPart>, range: &Range<u32>, out: &mut Vec<u8>) {
        out.push(b'[');
        for piece in pieces {
            let mut random = Random::new(self.seed, &piece.text.labels());
            for _ in 0..piece.tokens {
                // A Vec takes all that is written.
                let _infallible = write!(out, "{},", range.start + random.below(range.len() as u32));
            }
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.push(b']');
    }

    fn write_words<'a>(&self, pieces: impl IntoIterator<Item = &'a TextPart>, out: &mut Vec<u8>) {
        out.push(b'"');
        for piece in pieces {
            let mut random = Random::new(self.seed, &piece.text.labels());
            for _ in 0..piece.tokens {
                let word = WORDS[random.below(WORDS.len() as u32) as usize];
                out.extend_from_slice(word.as_bytes());
                out.push(b' ');
            }
        }
        if out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'"');
    }
}

/// The history before a turn and the turn itself, as roles and texts.
fn messages(chat: &Chat, turn: usize) -> impl Iterator<Item = (&'static str, &[TextPart])> {
    chat.turns[..=turn].iter().enumerate().flat_map(move |(at, exchange)| {
        let answer = (at < turn).then_some(("assistant", std::slice::from_ref(&exchange.answer)));
        [Some(("user", exchange.user.as_slice())), answer].into_iter().flatten()
    })
}

fn json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Names, numbers and values that came from JSON can be written as JSON, and a Vec takes all that is written.
    let _infallible = serde_json::to_writer(out, value);
}

/// One token each, with the space before them, in the vocabularies of Llama, Qwen, GPT and Mistral alike.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "for", "is", "on", "that", "by", "this", "with", "you", "it", "not", "or", "be",
    "are", "from", "at", "as", "your", "all", "have", "new", "more", "an", "was", "we", "will", "home", "can", "us",
    "about", "if", "page", "my", "has", "search", "free", "but", "our", "one", "other", "do", "no", "time", "they",
    "site", "he", "up", "may", "what", "which", "their", "news", "out", "use", "any", "there", "see", "only", "so",
    "his",
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::workload::lengths::Lengths;
    use crate::workload::{ChatSource, Synthetic, Workload};

    fn workload(seed: u64) -> Arc<Workload> {
        let synthetic = Synthetic {
            input: "20..40".parse().unwrap(),
            output: Lengths::Fixed(8),
            turns: Lengths::Fixed(2),
            shared_prefix_share: 0.5,
            prefix_groups: 1,
        };
        Arc::new(Workload { source: ChatSource::Synthetic(synthetic), seed, context_tokens: None })
    }

    fn dialect(api: RequestApi, prompt: PromptForm, seed: u64) -> RequestDialect {
        RequestDialect {
            api,
            prompt,
            model: Some("m\"".into()),
            ignore_eos: true,
            usage: true,
            extra: Map::new(),
            seed,
        }
    }

    fn bodies(dialect: &RequestDialect) -> Vec<Bytes> {
        let workload = workload(dialect.seed);
        let chats = workload.chats().take(5);
        chats.flat_map(|chat| [dialect.body(&chat, 0), dialect.body(&chat, 1)]).collect()
    }

    fn parsed(body: &Bytes) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    #[test]
    fn the_same_seed_sends_the_same_bytes() {
        for (api, prompt) in [
            (RequestApi::Completions, PromptForm::Ids(10..500)),
            (RequestApi::Completions, PromptForm::Text),
            (RequestApi::Chat, PromptForm::Text),
        ] {
            let sent = bodies(&dialect(api, prompt.clone(), 3));
            assert_eq!(sent, bodies(&dialect(api, prompt.clone(), 3)));
            let others = bodies(&dialect(api, prompt, 4));
            assert!(sent.iter().zip(&others).all(|(body, other)| body != other));
        }
    }

    #[test]
    fn ids_have_the_requested_number_and_range_and_share_what_is_shared() {
        let sent: Vec<_> =
            bodies(&dialect(RequestApi::Completions, PromptForm::Ids(10..500), 3)).iter().map(parsed).collect();
        let prompts: Vec<Vec<u64>> =
            sent.iter().map(|body| serde_json::from_value(body["prompt"].clone()).unwrap()).collect();
        assert!(prompts.iter().flatten().all(|id| (10..500).contains(id)));
        let expected: Vec<u64> =
            workload(3).chats().take(5).flat_map(|chat| chat.input_tokens().collect::<Vec<_>>()).collect();
        assert_eq!(prompts.iter().map(|prompt| prompt.len() as u64).collect::<Vec<_>>(), expected);
        assert_eq!(prompts[0][..10], prompts[2][..10], "all begin with the shared prefix");
        assert_ne!(prompts[0][20..], prompts[2][20..]);
        assert_eq!(prompts[0][..], prompts[1][..prompts[0].len()], "a turn begins with the one before it");
    }

    #[test]
    fn chats_alternate() {
        let sent = parsed(&bodies(&dialect(RequestApi::Chat, PromptForm::Text, 3))[1]);
        let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(sent["messages"][1]["content"].as_str().unwrap().split(' ').count(), 8);
        assert_eq!(sent["model"], "m\"");
    }

    #[test]
    fn users_have_the_last_word() {
        let mut dialect = dialect(RequestApi::Chat, PromptForm::Text, 3);
        dialect.extra.insert("temperature".into(), 1.into());
        dialect.extra.insert("top_k".into(), 5.into());
        let sent = parsed(&bodies(&dialect)[0]);
        assert_eq!((&sent["temperature"], &sent["top_k"]), (&1.into(), &5.into()));
    }
}
