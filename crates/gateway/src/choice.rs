//! One answer on its way from tokens to text.

use std::collections::VecDeque;

use baton_core::{FinishReason, TokenEvent, TokenId, TokenLogprobs};
use baton_text::{Detokenizer, StopMatcher};

/// The next part of one choice that is sent to the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    /// Over all prompts of the request.
    pub(crate) index: u32,
    pub(crate) text: String,
    /// The tokens whose text begins in this piece; empty unless log-probabilities were requested.
    pub(crate) tokens: Vec<ScoredToken>,
    /// Set in the last piece of a choice.
    pub(crate) finish: Option<Finish>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScoredToken {
    pub(crate) token: TokenId,
    /// Where its text begins, in characters of the choice's text.
    pub(crate) offset_chars: usize,
    /// `None` for a prompt's first token, which nothing comes before.
    pub(crate) logprobs: Option<TokenLogprobs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finish {
    Stop,
    Length,
}

/// ```text
///   [ sent | held: may become a stop string | bytes of an unfinished character )
///          ^ sent_chars                     ^ made_chars
/// ```
pub(crate) struct Choice {
    index: u32,
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    /// Stop strings do not count in the text of this many tokens at the start.
    min_tokens: u32,
    /// A stop token's own text is shown.
    include_stop: bool,
    made_chars: usize,
    sent_chars: usize,
    /// Tokens of whose text nothing has been sent.
    unsent: VecDeque<ScoredToken>,
    ended: bool,
}

impl Choice {
    /// `offset_chars`: of the echoed prompt, which comes before.
    pub(crate) fn new(
        index: u32,
        detokenizer: Detokenizer,
        matcher: StopMatcher,
        min_tokens: u32,
        include_stop: bool,
        offset_chars: usize,
    ) -> Self {
        Self {
            index,
            detokenizer,
            matcher,
            min_tokens,
            include_stop,
            made_chars: offset_chars,
            sent_chars: offset_chars,
            unsent: VecDeque::new(),
            ended: false,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// `None` when the token completes nothing that could be sent yet.
    pub(crate) fn accept(&mut self, event: TokenEvent) -> Option<Piece> {
        let fresh = self.text_of(&event);
        if let Some(logprobs) = event.logprobs {
            let (token, offset_chars) = (event.token, self.made_chars);
            self.unsent.push_back(ScoredToken { token, offset_chars, logprobs: Some(logprobs) });
        }
        self.made_chars += fresh.chars().count();

        let mut text = String::new();
        let stopped = if event.index < self.min_tokens {
            text = fresh;
            false
        } else {
            self.matcher.push(&fresh, &mut text)
        };
        let finish = match event.finish {
            _ if stopped => Some(Finish::Stop),
            Some(FinishReason::StopToken) => Some(Finish::Stop),
            Some(FinishReason::Length) => Some(Finish::Length),
            None => None,
        };
        if finish.is_some() && !stopped {
            self.matcher.finish(&mut text);
        }
        self.ended = finish.is_some();
        self.sent_chars += text.chars().count();
        // What a stop string cut off is no part of the answer, and neither are the tokens that only made it.
        let all = finish.is_some() && !stopped;
        let tokens = self.take_sent_tokens(all);
        let is_empty = text.is_empty() && tokens.is_empty() && finish.is_none();
        (!is_empty).then_some(Piece { index: self.index, text, tokens, finish })
    }

    fn text_of(&mut self, event: &TokenEvent) -> String {
        let mut text = String::new();
        if event.finish != Some(FinishReason::StopToken) || self.include_stop {
            self.detokenizer.push(event.token, &mut text);
        }
        if event.finish.is_some() {
            self.detokenizer.finish(&mut text);
        }
        text
    }

    fn take_sent_tokens(&mut self, all: bool) -> Vec<ScoredToken> {
        let sent = self.unsent.iter().take_while(|token| all || token.offset_chars < self.sent_chars).count();
        self.unsent.drain(..sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use baton_core::{Attempt, RequestId};
    use baton_text::{ControlTokens, SpecialTokens, StopStrings, TextStart, Tokenizer};

    use super::*;

    /// (text, texts of the tokens sent with it, finish) of every piece.
    type Pieces = Vec<(String, Vec<String>, Option<Finish>)>;

    struct Case<'a> {
        answer: &'a str,
        stops: &'a [&'a str],
        min_tokens: u32,
        include_stop: bool,
        finish: FinishReason,
    }

    fn run(case: &Case<'_>) -> Pieces {
        let tokenizer = Tokenizer::from_json(include_bytes!("../../../models/storyteller-11m/tokenizer.json")).unwrap();
        let vocabulary = tokenizer.vocabulary();
        let tokens = tokenizer.encode(case.answer, SpecialTokens::AsWritten).unwrap();
        let detokenizer = Detokenizer::new(Arc::clone(vocabulary), ControlTokens::Hide, TextStart::Earlier);
        let matcher = StopMatcher::new(StopStrings::new(case.stops), case.include_stop);
        let mut choice = Choice::new(0, detokenizer, matcher, case.min_tokens, case.include_stop, 0);
        let mut pieces = Pieces::new();
        for (index, &token) in tokens.iter().enumerate() {
            let event = TokenEvent {
                request: RequestId(1),
                attempt: Attempt(0),
                choice: baton_core::Choice(0),
                index: index as u32,
                token,
                logprobs: Some(TokenLogprobs { chosen: -1.0, top: Vec::new() }),
                finish: (index + 1 == tokens.len()).then_some(case.finish),
            };
            if let Some(piece) = choice.accept(event) {
                let names = piece.tokens.iter().map(|scored| vocabulary.text(scored.token).into_owned()).collect();
                pieces.push((piece.text, names, piece.finish));
            }
            if choice.has_ended() {
                break;
            }
        }
        pieces
    }

    const PLAIN: Case<'_> =
        Case { answer: "", stops: &[], min_tokens: 0, include_stop: false, finish: FinishReason::Length };

    #[test]
    fn text_and_tokens_line_up() {
        let (stop, length) = (Some(Finish::Stop), Some(Finish::Length));
        type Row<'a> = (Case<'a>, &'a [(&'a str, &'a [&'a str], Option<Finish>)]);
        let table: [Row<'_>; 9] = [
            (Case { answer: " the cat", ..PLAIN }, &[(" the", &[" the"], None), (" cat", &[" cat"], length)]),
            // Nothing of the stop string is sent, nor are its tokens.
            (
                Case { answer: " the cat and", stops: &[" cat and"], ..PLAIN },
                &[(" the", &[" the"], None), ("", &[], stop)],
            ),
            // A token that is half cut off is sent with its first half.
            (
                Case { answer: " the cat", stops: &["at"], ..PLAIN },
                &[(" the", &[" the"], None), (" c", &[" cat"], stop)],
            ),
            // Held text and its tokens come together.
            (
                Case { answer: " the cat", stops: &["the cat and"], ..PLAIN },
                &[(" ", &[" the"], None), ("the cat", &[" cat"], length)],
            ),
            (
                Case { answer: " the cat", stops: &[" cat"], include_stop: true, ..PLAIN },
                &[(" the", &[" the"], None), (" cat", &[" cat"], stop)],
            ),
            (
                Case { answer: " the the cat", stops: &[" the"], min_tokens: 1, ..PLAIN },
                &[(" the", &[" the"], None), ("", &[], stop)],
            ),
            // A stop token has an entry but no text.
            (
                Case { answer: " the<|im_end|>", finish: FinishReason::StopToken, ..PLAIN },
                &[(" the", &[" the"], None), ("", &["<|im_end|>"], stop)],
            ),
            (Case { answer: " cat", finish: FinishReason::StopToken, ..PLAIN }, &[("", &[" cat"], stop)]),
            // The bytes of a character wait for its last one.
            (
                Case { answer: "😀!", ..PLAIN },
                &[("😀", &["\u{FFFD}", "\u{FFFD}", "\u{FFFD}", "\u{FFFD}"], None), ("!", &["!"], length)],
            ),
        ];
        for (case, expected) in table {
            let expected: Pieces = expected
                .iter()
                .map(|(text, tokens, finish)| {
                    (text.to_string(), tokens.iter().map(ToString::to_string).collect(), *finish)
                })
                .collect();
            assert_eq!(run(&case), expected, "{:?} with {:?}", case.answer, case.stops);
        }
    }
}
