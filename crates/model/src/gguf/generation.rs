//! What a GGUF file says about generation: how to sample, when a text ends, how a conversation becomes a prompt.

use baton_core::{TokenId, TokenType};

use super::GgufFile;
use crate::{GenerationConfig, ModelError};

/// Ends of a turn or a text, in the formats of Llama, Qwen, SmolLM, Mistral and Phi. Converters name one of them, but chat
/// models use a second one where a document ends.
const ENDS: [&str; 6] = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>"];

impl GgufFile {
    pub(crate) fn generation(&self) -> Result<GenerationConfig, ModelError> {
        let unset = GenerationConfig::neutral(self.eos_token_ids()?);
        let fields = self.values().under("general.sampling");
        let temperature = fields.number("temp", "a number of at least 0", |number| number >= 0.0)?;
        let top_p = fields.number("top_p", "a number in (0, 1]", |number| number > 0.0 && number <= 1.0)?;
        let min_p = fields.number("min_p", "a number in [0, 1]", |number| (0.0..=1.0).contains(&number))?;
        let top_k =
            fields.number("top_k", "an integer of at least 0", |number| number >= 0.0 && number.fract() == 0.0)?;
        let penalty = fields.positive("penalty_repeat")?;
        Ok(GenerationConfig {
            temperature: temperature.map_or(unset.temperature, |number| number as f32),
            top_p: top_p.map_or(unset.top_p, |number| number as f32),
            top_k: top_k.filter(|count| *count > 0.0).map(|count| count as u32),
            min_p: min_p.map_or(unset.min_p, |number| number as f32),
            repetition_penalty: penalty.map_or(unset.repetition_penalty, |number| number as f32),
            ..unset
        })
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
