//! What a request has cost, in tokens.

use std::ops::AddAssign;

use serde::{Serialize, Serializer, ser::SerializeStruct};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    /// Of all choices; with the token that ended each.
    pub(crate) completion_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.cached_tokens += other.cached_tokens;
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PromptDetails {
            cached_tokens: u64,
        }
        let mut usage = serializer.serialize_struct("Usage", 4)?;
        usage.serialize_field("prompt_tokens", &self.prompt_tokens)?;
        usage.serialize_field("completion_tokens", &self.completion_tokens)?;
        usage.serialize_field("total_tokens", &(self.prompt_tokens + self.completion_tokens))?;
        usage.serialize_field("prompt_tokens_details", &PromptDetails { cached_tokens: self.cached_tokens })?;
        usage.end()
    }
}
