//! The rules for splitting text into words, by the names that llama.cpp's converter writes to `tokenizer.ggml.pre`.

use crate::bpe::{GPT2, SplitRule};
use crate::tokenizer_spec::WordRule;

pub(crate) struct Pre {
    pub(crate) words: WordRule,
    /// Whether a word that is a token stays one, whatever the merges would give.
    pub(crate) ignore_merges: bool,
    /// The default; the file may override it.
    pub(crate) add_bos: bool,
    /// Whether the original tokenizer converts text to its composed form (NFC) first.
    pub(crate) composed: bool,
}

/// `None` for an unknown name.
pub(crate) fn pre(name: &str) -> Option<Pre> {
    let plain = |words| Pre { words, ignore_merges: false, add_bos: false, composed: false };
    Some(match name {
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" | "jais" | "exaone4" | "trillion" => {
            plain(WordRule::Bytes(SplitRule::Gpt2))
        }
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
            plain(WordRule::Bytes(SplitRule::Gpt2Digits))
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "lfm2" => {
            Pre { ignore_merges: true, add_bos: true, ..plain(WordRule::Bytes(SplitRule::Llama3)) }
        }
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => plain(WordRule::Bytes(SplitRule::Llama3)),
        "qwen2" | "deepseek-r1-qwen" | "megrez" => Pre { composed: true, ..plain(WordRule::Bytes(SplitRule::Qwen2)) },
        "stablelm2" | "hunyuan" => plain(WordRule::Bytes(SplitRule::Qwen2)),
        "default" => plain(WordRule::Regexes(DEFAULT)),
        "tekken" => Pre { ignore_merges: true, add_bos: true, ..plain(WordRule::Regexes(TEKKEN)) },
        "deepseek-coder" => plain(WordRule::Regexes(DEEPSEEK_CODER)),
        "deepseek-v3" => plain(WordRule::Regexes(DEEPSEEK_V3)),
        _ => return None,
    })
}

/// The name that llama.cpp assumes for files older than `tokenizer.ggml.pre`.
pub(crate) const UNNAMED: &str = "default";

const DEFAULT: &[&str] = &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"];
const TEKKEN: &[&str] = &[concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)];
const DEEPSEEK_CODER: &[&str] = &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"];
const DEEPSEEK_V3: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
        r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];
