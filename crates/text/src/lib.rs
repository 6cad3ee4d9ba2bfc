//! Conversion between text and token ids. Prompts and conversations arrive from the gateway and leave as ids; ids arrive from engines
//! one by one and leave as text in whole characters, which ends at the client's stop strings.
//!
//! Nothing here does I/O: the files of a model come in as bytes, and errors name the file they are about.

mod bpe;
mod decoder;
mod detokenizer;
mod error;
mod gguf;
mod gguf_pre;
mod names;
mod reference;
mod special;
mod stop;
mod template;
mod tokenizer;
mod tokenizer_json;
mod tokenizer_spec;
mod vocabulary;

pub use detokenizer::{ControlTokens, Detokenizer, TextStart};
pub use error::TextError;
pub use special::TokenizerConfig;
pub use stop::{StopMatcher, StopStrings};
pub use template::{ChatTemplate, Conversation, Message};
pub use tokenizer::{SpecialTokens, Tokenizer};
pub use vocabulary::Vocabulary;
