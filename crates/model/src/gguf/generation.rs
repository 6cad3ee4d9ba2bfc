//! What a GGUF file holds about generation: how to sample, when a text ends, how a conversation becomes a prompt.

use baton_core::{TokenId, TokenType};

use super::GgufFile;
use crate::ModelError;
use crate::generation::{GenerationConfig, Stated};

/// Ends of a turn or a text, in the formats of Llama, Qwen, SmolLM, Mistral and Phi. Converters name one of them, but chat
/// models use a second one where a document ends.
const ENDS: [&str; 6] = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>"];

impl GgufFile {
    pub(crate) fn generation(&self) -> Result<GenerationConfig, ModelError> {
        let fields = self.values().under("general.sampling");
        let top_k =
            fields.number("top_k", "an integer of at least 0", |number| number >= 0.0 && number.fract() == 0.0)?;
        let stated = Stated {
            temperature: fields.number("temp", "a number of at least 0", |number| number >= 0.0)?,
            top_p: fields.number("top_p", "a number in (0, 1]", |number| number > 0.0 && number <= 1.0)?,
            top_k: top_k.map(|count| count as u32),
            min_p: fields.number("min_p", "a number in [0, 1]", |number| (0.0..=1.0).contains(&number))?,
            repetition_penalty: fields.positive("penalty_repeat")?,
        };
        Ok(GenerationConfig::new(&stated, None, self.eos_token_ids()?))
    }

    /// What it is called inside and outside, as far as it is.
    pub(crate) fn names(&self) -> Result<Vec<&str>, ModelError> {
        Ok([self.values().text("general.name")?, Some(self.file())].into_iter().flatten().collect())
    }

    pub(crate) fn chat_template(&self) -> Result<Option<&str>, ModelError> {
        self.values().text("tokenizer.chat_template")
    }

    fn eos_token_ids(&self) -> Result<Vec<TokenId>, ModelError> {
        let (tokens, types) = (self.texts("tokenizer.ggml.tokens")?, self.types()?);
        let is_end = |id: usize| ENDS.contains(&tokens[id].as_str()) && types.get(id) == Some(&TokenType::Control);
        let mut ids: Vec<_> = (0..tokens.len()).filter(|id| is_end(*id)).map(|id| TokenId(id as u32)).collect();
        for name in ["eos", "eot", "eom"] {
            ids.extend(self.special(name, tokens.len())?);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}
