//! Tokenizers of all kinds, each out of the bundled model's vocabulary.

use std::collections::HashSet;

use baton_core::{GgufVocabulary, TokenType, VocabularyKind};
use baton_text::Tokenizer;
use serde_json::{Map, Value, json};

pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub(crate) fn storyteller() -> Value {
    serde_json::from_slice(include_bytes!("../../../../models/storyteller-11m/tokenizer.json")).unwrap()
}

/// Words by `regex`, or by GPT-2's.
pub(crate) fn byte_level(regex: Option<&str>, composed: bool) -> Value {
    let mut file = storyteller();
    let bytes = |use_regex| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    file["pre_tokenizer"] = match regex {
        None => bytes(true),
        Some(regex) => json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false}, bytes(false)]}),
    };
    if composed {
        file["normalizer"] = json!({"type": "NFC"});
    }
    file
}

pub(crate) fn prepend() -> Value {
    json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})
}

/// The same words, spelled SentencePiece's way: whole characters, ▁ for a space, and a token for each byte.
pub(crate) fn sentencepiece(normalizer: &Value, pre_tokenizer: &Value) -> Value {
    let bytes = Tokenizer::from_json(storyteller().to_string().as_bytes()).unwrap();
    let spelled = |token: &Value| {
        let id = bytes.token_to_id(token.as_str().unwrap()).unwrap();
        let text = std::str::from_utf8(bytes.vocabulary().bytes(id)).ok()?;
        (!text.is_empty() && text.is_ascii()).then(|| text.replace(' ', "▁"))
    };
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(('!'..='~').chain("▁äöüßéжя日本語한".chars()).map(String::from));
    let mut known: HashSet<String> = tokens.iter().cloned().collect();
    let mut merges: Vec<[String; 2]> =
        vec![["▁".into(), "▁".into()], ["▁▁".into(), "▁▁".into()], ["日".into(), "本".into()]];
    for pair in storyteller()["model"]["merges"].as_array().unwrap() {
        if let (Some(left), Some(right)) = (spelled(&pair[0]), spelled(&pair[1])) {
            merges.push([left, right]);
        }
    }
    // In the order of the merges, so that scores and ranks agree; each token is made in one way only.
    merges.retain(|pair| known.contains(&pair[0]) && known.contains(&pair[1]) && known.insert(pair.concat()));
    tokens.extend(merges.iter().map(|pair| pair.concat()));
    let added = |id: u32, content: &str| json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges},
    })
}

/// What a converter would write of a tokenizer.json.
pub(crate) fn gguf(json: &Value, kind: VocabularyKind) -> GgufVocabulary {
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    vocab.iter().for_each(|(token, id)| tokens[id.as_u64().unwrap() as usize] = token.clone());
    let mut types = vec![TokenType::Normal; tokens.len()];
    for added in json["added_tokens"].as_array().unwrap() {
        types[added["id"].as_u64().unwrap() as usize] = TokenType::Control;
    }
    let pieces = kind == VocabularyKind::SentencePiece;
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    GgufVocabulary {
        scores: if pieces { (0..tokens.len()).map(|id| -(id as f32)).collect() } else { Vec::new() },
        merges: if pieces { Vec::new() } else { merges.collect() },
        types,
        tokens,
        kind,
        bos: None,
        eos: None,
        unknown: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
    }
}
