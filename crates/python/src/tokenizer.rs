//! The model's tokenizer.

use std::sync::Arc;

use baton_core::TokenId;
use baton_text::{ControlTokens, SpecialTokens, Vocabulary};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Text to token ids and back, as the server does it.
#[pyclass(frozen)]
#[derive(Clone)]
pub(crate) struct Tokenizer(pub(crate) Arc<baton_text::Tokenizer>);

impl Tokenizer {
    pub(crate) fn vocabulary(&self) -> &Arc<Vocabulary> {
        self.0.vocabulary()
    }
}

#[pymethods]
impl Tokenizer {
    /// Token ids of a text; with the special tokens that the model expects around a prompt unless they are not wanted.
    #[pyo3(signature = (text, add_special_tokens=true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        let special = if add_special_tokens { SpecialTokens::Add } else { SpecialTokens::AsWritten };
        let tokens = py.detach(|| self.0.encode(text, special));
        let tokens = tokens.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(tokens.into_iter().map(|token| token.0).collect())
    }

    /// The text of token ids.
    #[pyo3(signature = (tokens, skip_special_tokens=true))]
    fn decode(&self, tokens: Vec<u32>, skip_special_tokens: bool) -> String {
        let control = if skip_special_tokens { ControlTokens::Hide } else { ControlTokens::Show };
        self.0.decode(&tokens.into_iter().map(TokenId).collect::<Vec<_>>(), control)
    }
}
