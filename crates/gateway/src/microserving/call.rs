//! What the three calls have in common: a completion request for one prompt, whose it is, and places in the prompt.

use std::sync::Arc;

use baton_core::{Attempt, GenerateRequest, Limits, RequestId, SamplingParams, TokenId};

use crate::card::ModelCard;
use crate::completions::CompletionRequest;
use crate::error::ApiError;
use crate::fields::Fields;

const MAX_NAME_BYTES: usize = 512;

pub(super) struct Call {
    pub(super) user: Option<String>,
    pub(super) completion: CompletionRequest,
}

impl Call {
    pub(super) fn take(fields: &mut Fields<'_>, card: &ModelCard) -> Result<Self, ApiError> {
        let user = fields.take::<String>("user")?;
        if user.as_ref().is_some_and(|user| user.is_empty() || user.len() > MAX_NAME_BYTES) {
            let message = format!("user names the request: it must have between 1 and {MAX_NAME_BYTES} bytes");
            return Err(ApiError::invalid("user", message));
        }
        let completion = CompletionRequest::take(fields, card)?;
        if completion.prompt_count() != 1 {
            return Err(ApiError::invalid("prompt", "a call is about one prompt, not about a list of them"));
        }
        Ok(Self { user, completion })
    }
}

/// `[0, length]`; a negative index counts from the end, as in Python.
pub(super) fn position(name: &str, index: i64, length: usize) -> Result<u32, ApiError> {
    let at = if index < 0 { index.checked_add_unsigned(length as u64) } else { Some(index) };
    match at.and_then(|at| u32::try_from(at).ok()) {
        Some(at) if at as usize <= length => Ok(at),
        _ => Err(ApiError::invalid(name, format!("{name} is {index}, but the prompt has {length} tokens"))),
    }
}

/// What comes before a generation looks at the prompt only.
pub(super) fn bare_request(id: RequestId, prompt: Arc<[TokenId]>) -> GenerateRequest {
    GenerateRequest {
        id,
        attempt: Attempt(0),
        prompt,
        outputs: vec![Vec::new()],
        ended: vec![false],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens: 1, min_tokens: 0, stop_tokens: Vec::new() },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_places_count_from_the_end() {
        for (index, place) in [(0, Some(0)), (9, Some(9)), (10, Some(10)), (-1, Some(9)), (-10, Some(0)), (11, None)] {
            assert_eq!(position("end", index, 10).ok(), place, "{index}");
        }
        for index in [-11, i64::MIN, i64::MAX, 1 << 32] {
            let error = position("end", index, 10).unwrap_err();
            assert_eq!(error.message, format!("end is {index}, but the prompt has 10 tokens"));
        }
    }
}
