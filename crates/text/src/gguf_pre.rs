//! How text is cut into words, by the names that llama.cpp's converter gives in `tokenizer.ggml.pre`.

use crate::bpe::{Cut, GPT2};
use crate::recipe::WordRule;

pub(crate) struct Pre {
    pub(crate) words: WordRule,
    /// A word that is a token stays one, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Unless the file says otherwise.
    pub(crate) add_bos: bool,
    /// The original tokenizer composes its text (NFC) first.
    pub(crate) composed: bool,
}

/// `None` for a name this version does not know.
pub(crate) fn pre(name: &str) -> Option<Pre> {
    let plain = |words| Pre { words, ignore_merges: false, add_bos: false, composed: false };
    Some(match name {
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" | "jais" | "exaone4" | "trillion" => {
            plain(WordRule::Bytes(Cut::Gpt2))
        }
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
            plain(WordRule::Bytes(Cut::Gpt2Digits))
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "lfm2" => {
            Pre { ignore_merges: true, add_bos: true, ..plain(WordRule::Bytes(Cut::Llama3)) }
        }
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => plain(WordRule::Bytes(Cut::Llama3)),
        "qwen2" | "deepseek-r1-qwen" | "megrez" => Pre { composed: true, ..plain(WordRule::Bytes(Cut::Qwen2)) },
        "stablelm2" | "hunyuan" => plain(WordRule::Bytes(Cut::Qwen2)),
        "default" => plain(WordRule::Regexes(DEFAULT)),
        "tekken" => Pre { ignore_merges: true, add_bos: true, ..plain(WordRule::Regexes(TEKKEN)) },
        "deepseek-coder" => plain(WordRule::Regexes(DEEPSEEK_CODER)),
        "deepseek-v3" => plain(WordRule::Regexes(DEEPSEEK_V3)),
        _ => return None,
    })
}

/// What llama.cpp does with files older than `tokenizer.ggml.pre`.
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
