//! The same tokens, text by text.

use baton_core::{GgufVocabulary, VocabularyKind};
use baton_text::{SpecialTokens, Tokenizer};
use serde_json::{Value, json};

use crate::corpus::Corpus;
use crate::vocabularies::{self, LLAMA3, QWEN2, byte_level, gguf, sentencepiece, storyteller};

/// Seeds of one test; the example tokenizer_speed runs megabytes over real vocabularies.
const TEXTS: u64 = 400;

struct Both {
    name: &'static str,
    ours: Tokenizer,
    reference: tokenizers::Tokenizer,
}

impl Both {
    fn of(name: &'static str, json: &Value) -> Self {
        let json = json.to_string();
        let ours = Tokenizer::from_json(json.as_bytes()).unwrap();
        Self { name, ours, reference: tokenizers::Tokenizer::from_bytes(json.as_bytes()).unwrap() }
    }

    fn check(&self, text: &str) {
        for (special, add) in [(SpecialTokens::Add, true), (SpecialTokens::AsWritten, false)] {
            let ours: Vec<u32> = self.ours.encode(text, special).unwrap().iter().map(|token| token.0).collect();
            assert_eq!(ours, self.reference.encode_fast(text, add).unwrap().get_ids(), "{}: {text:?}", self.name);
        }
    }

    fn check_corpus(&self) {
        let special = self.reference.get_added_tokens_decoder().values().map(|token| token.content.clone()).collect();
        let mut corpus = Corpus::new(1, special);
        for pieces in 0..TEXTS {
            self.check(&corpus.text(pieces % 60));
        }
    }
}

fn all() -> Vec<Both> {
    let metaspace =
        |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    let nothing = Value::Null;
    vec![
        Both::of("the bundled model's", &storyteller()),
        Both::of("gpt-2", &byte_level(None, false)),
        Both::of("llama 3", &byte_level(Some(LLAMA3), false)),
        Both::of("qwen 2", &byte_level(Some(QWEN2), true)),
        Both::of("llama 2", &sentencepiece(&vocabularies::prepend(), &nothing)),
        Both::of("mistral", &sentencepiece(&nothing, &metaspace("first"))),
        Both::of("metaspace always", &sentencepiece(&nothing, &metaspace("always"))),
        Both::of("metaspace never", &sentencepiece(&nothing, &metaspace("never"))),
    ]
}

#[test]
fn seeded_texts() {
    all().iter().for_each(Both::check_corpus);
}

/// Words, digits and spaces before and after each character whose kind differs from that of its neighbour.
#[test]
fn every_kind_of_character_in_every_place() {
    let kind = |code: u32| char::from_u32(code).map(|c| (c.is_alphabetic(), c.is_numeric(), c.is_whitespace()));
    let edges = (1..0x11_0000).filter(|&code| kind(code) != kind(code - 1)).flat_map(|code| [code - 1, code]);
    let edges: Vec<char> = edges.filter_map(char::from_u32).collect();
    assert!(edges.len() > 1000, "{}", edges.len());
    for both in all().iter().take(4) {
        for chars in edges.chunks(50) {
            let places = chars.iter().map(|c| format!("{c}a{c} {c}{c}1{c}2 \n{c}  {c}'s{c}\n\n"));
            both.check(&places.collect::<String>());
        }
    }
}

#[test]
fn long_words_without_an_end() {
    for both in all() {
        for (unit, count) in
            [("a", 5000), ("ab", 4000), ("日本", 3000), (" ", 4000), ("\n", 4000), ("!?", 2000), ("12", 2000)]
        {
            both.check(&unit.repeat(count));
        }
    }
}

#[test]
fn gguf_metadata_and_tokenizer_json_are_one_tokenizer() {
    let bpe = |pre: &str| VocabularyKind::Bpe { pre: Some(pre.to_owned()) };
    let plain = byte_level(None, false);
    let table = [
        (storyteller(), gguf(&plain, bpe("smollm"))),
        (plain.clone(), gguf(&plain, bpe("gpt-2"))),
        (byte_level(Some(QWEN2), true), gguf(&plain, bpe("qwen2"))),
        (byte_level(Some(LLAMA3), false), gguf(&plain, bpe("glm4"))),
    ];
    for (json, vocabulary) in table {
        let both = Both { ours: Tokenizer::from_gguf(&vocabulary).unwrap(), ..Both::of("gguf", &json) };
        both.check_corpus();
        let from_json = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
        for id in (0..4096).map(baton_core::TokenId) {
            let (a, b) = (both.ours.vocabulary(), from_json.vocabulary());
            assert_eq!((a.bytes(id), a.is_special(id)), (b.bytes(id), b.is_special(id)), "{id}");
        }
    }
}

/// A file whose words only regular expressions cut still works.
#[test]
fn gguf_with_rules_of_the_reference() {
    let tekken = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let mut json = byte_level(Some(tekken), false);
    json["model"]["ignore_merges"] = json!(true);
    let vocabulary = gguf(&json, VocabularyKind::Bpe { pre: Some("tekken".to_owned()) });
    Both { ours: Tokenizer::from_gguf(&vocabulary).unwrap(), ..Both::of("tekken", &json) }.check_corpus();
}

/// Scores make the ranks: tokens whose scores are all different merge as in the list of merges.
#[test]
fn sentencepiece_by_score() {
    let json = sentencepiece(&vocabularies::prepend(), &Value::Null);
    let vocabulary = gguf(&json, VocabularyKind::SentencePiece);
    Both { ours: Tokenizer::from_gguf(&vocabulary).unwrap(), ..Both::of("sentencepiece", &json) }.check_corpus();
}

/// As in SmolLM2's vocabulary: a byte that did not occur in training has no token, and vanishes.
#[test]
fn bytes_without_a_token() {
    let mut json = storyteller();
    let merges = json["model"]["merges"].to_string();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    let lone = |token: &&String| token.chars().count() == 1 && !merges.contains(token.as_str());
    let lone: Vec<String> = vocab.keys().filter(lone).cloned().collect();
    assert!(!lone.is_empty());
    for token in lone {
        let id = vocab.remove(&token).unwrap();
        vocab.insert(format!("<{token}>"), id);
    }
    let vocabulary = gguf(&json, VocabularyKind::Bpe { pre: Some("smollm".to_owned()) });
    for ours in [Both::of("json", &json).ours, Tokenizer::from_gguf(&vocabulary).unwrap()] {
        let both = Both { ours, ..Both::of("without some bytes", &json) };
        both.check("a\u{4}b \u{4}\u{13}\u{14}c\u{1d}");
        both.check_corpus();
    }
}

#[test]
fn errors_name_the_key() {
    let good = gguf(&storyteller(), VocabularyKind::Bpe { pre: Some("smollm".to_owned()) });
    let pieces = gguf(&sentencepiece(&Value::Null, &Value::Null), VocabularyKind::SentencePiece);
    let bpe = |pre: &str| VocabularyKind::Bpe { pre: Some(pre.to_owned()) };
    let table = [
        (
            GgufVocabulary { kind: bpe("klingon"), ..good.clone() },
            "tokenizer.ggml.pre: this version does not know \"klingon\"",
        ),
        (GgufVocabulary { tokens: Vec::new(), ..good.clone() }, "tokenizer.ggml.tokens: "),
        (GgufVocabulary { merges: vec!["a bq".to_owned()], ..good.clone() }, "tokenizer.ggml.merges: \"a bq\""),
        (
            GgufVocabulary { bos: Some(baton_core::TokenId(9999)), add_bos: Some(true), ..good },
            "tokenizer.ggml.bos_token_id: ",
        ),
        (GgufVocabulary { scores: vec![0.0], ..pieces.clone() }, "tokenizer.ggml.scores: 1 for "),
        (
            GgufVocabulary { tokens: pieces.tokens[..9].to_vec(), scores: vec![0.0; 9], ..pieces },
            "tokenizer.ggml.tokens: not every byte",
        ),
    ];
    for (vocabulary, beginning) in table {
        let error = Tokenizer::from_gguf(&vocabulary).err().unwrap();
        assert!(!error.is_callers_fault() && error.to_string().starts_with(beginning), "{error}");
    }
}
