//! What is sent: chats of one or more turns, each a function of the seed and its number alone. Nothing of a prompt is stored
//! but which texts it is made of; the tokens of a text follow from its id, so equal ids are shared prefixes, to the token.

pub(crate) mod lengths;
pub(crate) mod synthetic;
pub(crate) mod trace;

use std::sync::Arc;
use std::time::Duration;

pub use lengths::Lengths;
pub(crate) use synthetic::Synthetic;
pub use trace::{Trace, TraceScale};

/// Which text. The same id is the same text, token by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextId {
    kind: TextKind,
    number: u64,
    turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// Seen once.
    Unique,
    /// What many prompts begin with.
    Prefix,
    /// Stands for an answer in the history of a chat.
    Answer,
    /// A block of a trace.
    Block,
}

impl TextId {
    pub fn new(kind: TextKind, number: u64, turn: usize) -> Self {
        Self { kind, number, turn: turn as u64 }
    }

    pub fn kind(self) -> TextKind {
        self.kind
    }

    /// Of the random numbers that it is made of.
    pub fn labels(self) -> [u64; 3] {
        [self.kind as u64, self.number, self.turn]
    }
}

/// The first tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPart {
    pub text: TextId,
    pub tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTurn {
    /// What the user adds to the history.
    pub user: Vec<TextPart>,
    pub output_tokens: u32,
    /// What later turns carry as the answer to this one. It is made up: what the server really answered would make requests
    /// depend on the server.
    pub answer: TextPart,
}

impl ChatTurn {
    fn user_tokens(&self) -> u64 {
        self.user.iter().map(|piece| u64::from(piece.tokens)).sum()
    }
}

/// Each turn is sent when the one before it has been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chat {
    /// When it happened, in a trace.
    pub at: Option<Duration>,
    pub turns: Vec<ChatTurn>,
}

impl Chat {
    /// Tokens of the prompt of each turn: all turns before it, and what the user adds.
    pub fn input_tokens(&self) -> impl Iterator<Item = u64> {
        self.turns.iter().scan(0, |history, turn| {
            let input = *history + turn.user_tokens();
            *history = input + u64::from(turn.answer.tokens);
            Some(input)
        })
    }

    /// A chat ends when the context is full.
    pub fn cut_to(&mut self, context_tokens: u64) {
        let fits = self.input_tokens().zip(&self.turns);
        let fits = fits.take_while(|(input, turn)| input + u64::from(turn.output_tokens) <= context_tokens).count();
        self.turns.truncate(fits);
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ChatSource {
    Synthetic(Synthetic),
    Trace(Trace),
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) source: ChatSource,
    pub(crate) seed: u64,
    /// Of the server, where it reports that.
    pub(crate) context_tokens: Option<u32>,
}

impl Workload {
    /// In the order in which they are started; those that do not fit the server's context are left out.
    pub(crate) fn chats(self: &Arc<Self>) -> impl Iterator<Item = Chat> + Send + use<> {
        let workload = Arc::clone(self);
        (0..).map_while(move |number| workload.chat(number)).filter(|chat| !chat.turns.is_empty())
    }

    /// Without turns if it does not fit; `None` after the last.
    fn chat(&self, number: u64) -> Option<Chat> {
        let mut chat = match &self.source {
            ChatSource::Synthetic(synthetic) => synthetic.chat(self.seed, number),
            ChatSource::Trace(trace) => trace.chat(number)?,
        };
        chat.cut_to(self.context_tokens.map_or(u64::MAX, u64::from));
        Some(chat)
    }

    /// How many of the first thousand do not fit, or of a whole trace; an error when nothing fits.
    pub(crate) fn left_out(&self) -> Result<usize, String> {
        let Some(context) = self.context_tokens else { return Ok(0) };
        let all = match &self.source {
            ChatSource::Synthetic(_) => 1000,
            ChatSource::Trace(trace) => trace.len(),
        };
        let chats = (0..all as u64).filter_map(|number| self.chat(number));
        let left_out = chats.filter(|chat| chat.turns.is_empty()).count();
        if left_out < all {
            return Ok(left_out);
        }
        Err(format!(
            "no request fits the server's context of {context} tokens: make --input, --output or --length-scale smaller"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(user: u32, output: u32) -> ChatTurn {
        let piece = |tokens| TextPart { text: TextId::new(TextKind::Unique, 0, 0), tokens };
        ChatTurn { user: vec![piece(user)], output_tokens: output, answer: piece(output) }
    }

    #[test]
    fn history_grows_until_the_context_is_full() {
        let mut chat = Chat { at: None, turns: vec![turn(10, 5), turn(20, 5), turn(30, 5)] };
        assert_eq!(chat.input_tokens().collect::<Vec<_>>(), [10, 35, 70]);
        chat.cut_to(75);
        assert_eq!(chat.turns.len(), 3);
        chat.cut_to(74);
        assert_eq!(chat.turns.len(), 2);
        chat.cut_to(14);
        assert!(chat.turns.is_empty());
    }
}
