//! Errors of a model's tokenizer and template files, and of callers' texts.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum TextError {
    /// A mistake in the model's files, found when it is loaded.
    #[error("{file}: {message}")]
    File { file: &'static str, message: String },
    /// The caller's mistake: the template refuses this conversation (`raise_exception`).
    #[error("{0}")]
    Refused(String),
    /// The caller's mistake: the template cannot be rendered with this conversation.
    #[error("the model's chat template cannot render these messages: {0}")]
    Unrenderable(String),
    /// The caller's mistake: the tokenizer cannot represent this text.
    #[error("the text cannot be tokenized: {0}")]
    Untokenizable(String),
}

impl TextError {
    pub(crate) fn file(file: &'static str, message: impl ToString) -> Self {
        Self::File { file, message: message.to_string() }
    }

    /// `false` when the model's files are at fault.
    pub fn is_callers_fault(&self) -> bool {
        !matches!(self, Self::File { .. })
    }
}
