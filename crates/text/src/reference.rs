//! Hugging Face's own tokenizer, for tokenizers that [`Bpe`](crate::bpe::Bpe) does not support. It is slower.

use serde_json::{Value, json};

use crate::decoder::TokenDecoder;
use crate::tokenizer_spec::TokenizerSpec;
use crate::{TextError, Vocabulary};

pub(crate) fn from_json(file: &'static str, json: &[u8]) -> Result<tokenizers::Tokenizer, TextError> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|error| TextError::file(file, error))?;
    // Truncation or padding left in the file from training would silently change prompts.
    tokenizer.with_truncation(None).map_err(|error| TextError::file(file, error))?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// The tokenizer.json of a byte-level tokenizer whose words are split by `regexes`.
pub(crate) fn byte_level_json(spec: &TokenizerSpec, regexes: &[&str]) -> Value {
    let names: Vec<&str> = spec.names();
    let name = |id: u32| names.get(id as usize).copied().unwrap_or_default();
    let added: Vec<Value> = (spec.added.iter())
        .map(|token| {
            json!({"id": token.id, "content": token.content, "special": token.special, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    let split =
        |regex: &&str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let mut cutters: Vec<Value> = regexes.iter().map(split).collect();
    cutters.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}));
    let vocab: serde_json::Map<String, Value> =
        spec.tokens.iter().map(|(name, id)| (name.clone(), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": spec.composed.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cutters},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": spec.ignore_merges,
            "vocab": vocab,
            "merges": spec.merges.iter().map(|merge| [name(merge.left), name(merge.right)]).collect::<Vec<_>>()},
    })
}

/// The bytes of each id.
pub(crate) fn vocabulary(tokenizer: &tokenizers::Tokenizer, decoder: &TokenDecoder) -> Vocabulary {
    let added = tokenizer.get_added_tokens_decoder();
    let len = tokenizer.get_vocab(true).into_values().max().map_or(0, |last| last + 1);
    let tokens = (0..len).map(|id| match added.get(&id) {
        Some(token) => (token.content.clone().into_bytes(), token.special),
        None => (tokenizer.id_to_token(id).map(|token| decoder.bytes(&token)).unwrap_or_default(), false),
    });
    Vocabulary::new(tokens, decoder.leading_spaces)
}
