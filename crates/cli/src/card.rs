//! The gateway's data about a model, read from the model's small files.

use std::sync::Arc;

use baton_gateway::{ModelCard, SamplingDefaults};
use baton_model::ModelFiles;

use crate::failure::Failure;
use crate::model_text::ModelText;

/// `max_context_tokens` is that of the engines, whose KV pool may hold less than the model allows.
pub(crate) fn model_card(files: &ModelFiles, max_context_tokens: usize) -> Result<ModelCard, Failure> {
    let decoder = files.decoder().map_err(Failure::user)?;
    let generation = files.generation().map_err(Failure::user)?;
    let text = ModelText::open(files)?;
    let mut eos_tokens = generation.eos_token_ids;
    if eos_tokens.is_empty() {
        eos_tokens.extend(text.eos_token);
    }
    Ok(ModelCard {
        id: files.name().to_owned(),
        template: text.template,
        bos_token: text.bos_token,
        eos_tokens,
        defaults: SamplingDefaults {
            temperature: generation.sampling.temperature,
            top_p: generation.sampling.top_p,
            top_k: generation.sampling.top_k,
            min_p: generation.sampling.min_p,
            repetition_penalty: generation.sampling.repetition_penalty,
            max_new_tokens: generation.max_new_tokens,
            source: generation.source.name(),
        },
        max_context_tokens: max_context_tokens as u32,
        vocab_size: decoder.vocab as u32,
        tokenizer: Arc::new(text.tokenizer),
    })
}
