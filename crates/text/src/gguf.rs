//! Converts the tokenizer inside a GGUF file to a [`TokenizerSpec`].

use std::collections::HashMap;

use baton_core::{GgufVocabulary, TokenId, TokenType, VocabularyKind};

use crate::TextError;
use crate::bpe::{AddedToken, Merge, Prefix};
use crate::decoder::TokenDecoder;
use crate::gguf_pre;
use crate::tokenizer_spec::{TokenizerSpec, WordRule};

/// Errors name the key in the file.
pub(crate) fn spec(vocabulary: &GgufVocabulary) -> Result<(TokenizerSpec, TokenDecoder), TextError> {
    if vocabulary.tokens.is_empty() {
        return Err(TextError::file("tokenizer.ggml.tokens", "empty"));
    }
    let ids = vocabulary.tokens.iter().map(String::as_str).zip(0..).collect();
    match &vocabulary.kind {
        VocabularyKind::Bpe { pre } => byte_level(vocabulary, pre.as_deref().unwrap_or(gguf_pre::UNNAMED), &ids),
        VocabularyKind::SentencePiece => sentencepiece(vocabulary, &ids),
    }
}

fn byte_level(
    vocabulary: &GgufVocabulary,
    pre: &str,
    ids: &HashMap<&str, u32>,
) -> Result<(TokenizerSpec, TokenDecoder), TextError> {
    let Some(pre) = gguf_pre::pre(pre) else {
        return Err(TextError::file("tokenizer.ggml.pre", format!("this version does not know \"{pre}\"")));
    };
    let merge = |(merge, rank): (&String, u32)| {
        let id = |name: &str| ids.get(name).copied();
        let (left, right) = merge.split_once(' ')?;
        Some(Merge { left: id(left)?, right: id(right)?, rank, token: id(&[left, right].concat())? })
    };
    let merges = vocabulary.merges.iter().zip(0..).map(|entry| {
        merge(entry).ok_or_else(|| {
            TextError::file("tokenizer.ggml.merges", format!("{:?} is not two tokens that make a third", entry.0))
        })
    });
    let spec = TokenizerSpec {
        composed: pre.composed,
        merges: merges.collect::<Result<_, _>>()?,
        ignore_merges: pre.ignore_merges,
        ..common(vocabulary, pre.words, pre.add_bos, None)?
    };
    Ok((spec, TokenDecoder::byte_level()))
}

fn sentencepiece(
    vocabulary: &GgufVocabulary,
    ids: &HashMap<&str, u32>,
) -> Result<(TokenizerSpec, TokenDecoder), TextError> {
    let prefixed = vocabulary.add_space_prefix.unwrap_or(true);
    let words = WordRule::Pieces(if prefixed { Prefix::Always } else { Prefix::Never });
    let merges = merges_by_score(vocabulary, ids)?;
    let spec = TokenizerSpec { merges, ..common(vocabulary, words, true, Some(TokenId(1)))? };
    Ok((spec, TokenDecoder::sentencepiece(usize::from(prefixed))))
}

fn common(
    vocabulary: &GgufVocabulary,
    words: WordRule,
    add_bos: bool,
    default_bos: Option<TokenId>,
) -> Result<TokenizerSpec, TextError> {
    let of_type = vocabulary.tokens.iter().zip(0..).zip(&vocabulary.types);
    let added = of_type.filter_map(|((content, id), kind)| {
        let special = match kind {
            TokenType::Control | TokenType::Unknown => true,
            TokenType::UserDefined => false,
            TokenType::Normal | TokenType::Unused | TokenType::Byte => return None,
        };
        Some(AddedToken { id, content: content.clone(), special })
    });
    let around = |wanted: Option<bool>, default: bool, token: Option<TokenId>, key: &'static str| {
        let token = token.filter(|_| wanted.unwrap_or(default));
        match token {
            Some(id) if id.index() >= vocabulary.tokens.len() => Err(TextError::file(key, format!("no token {id}"))),
            token => Ok(token.into_iter().map(|id| id.0).collect()),
        }
    };
    let bos = vocabulary.bos.or(default_bos);
    Ok(TokenizerSpec {
        tokens: vocabulary.tokens.iter().cloned().zip(0..).collect(),
        added: added.collect(),
        added_to_normalized: Vec::new(),
        composed: false,
        words,
        merges: Vec::new(),
        ignore_merges: false,
        drops_unknown: true,
        before: around(vocabulary.add_bos, add_bos, bos, "tokenizer.ggml.bos_token_id")?,
        after: around(vocabulary.add_eos, false, vocabulary.eos, "tokenizer.ggml.eos_token_id")?,
    })
}

/// SentencePiece merges any two neighbours that make a token, the best score first. So each way to make a token of two is a
/// merge, ranked by score.
fn merges_by_score(vocabulary: &GgufVocabulary, ids: &HashMap<&str, u32>) -> Result<Vec<Merge>, TextError> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let (tokens, scores) = (&vocabulary.tokens, &vocabulary.scores);
    if scores.len() != tokens.len() {
        return Err(TextError::file(SCORES, format!("{} for {} tokens", scores.len(), tokens.len())));
    }
    if scores.iter().any(|score| score.is_nan()) {
        return Err(TextError::file(SCORES, "not all are numbers"));
    }
    let mut by_score: Vec<u32> = (0..tokens.len() as u32).collect();
    by_score.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    let mut merges = Vec::new();
    let (mut rank, mut last) = (0, f32::INFINITY);
    for id in by_score {
        let score = scores[id as usize];
        rank += u32::from(score != last);
        last = score;
        let kind = vocabulary.types.get(id as usize).unwrap_or(&TokenType::Normal);
        if !matches!(kind, TokenType::Normal | TokenType::UserDefined) {
            continue;
        }
        let token = tokens[id as usize].as_str();
        merges.extend(token.char_indices().skip(1).filter_map(|(at, _)| {
            let (left, right) = token.split_at(at);
            Some(Merge { left: *ids.get(left)?, right: *ids.get(right)?, rank, token: id })
        }));
    }
    Ok(merges)
}

/// Vocabularies with equal hashes tokenize alike.
pub(crate) fn hash(vocabulary: &GgufVocabulary) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // The debug format contains every field, and differs for different values.
    hasher.update(format!("{vocabulary:?}").as_bytes());
    hasher.finalize()
}
