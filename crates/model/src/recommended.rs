//! Sampling that the makers of known models recommend, for files without it: GGUF files are often converted without it,
//! and some makers write it into their model card only.

use crate::Sampling;

/// `name`: as the model's files, their directory or the hub call it.
pub(crate) fn recommended(name: &str) -> Option<Sampling> {
    let name = plain(name);
    // What is recommended for a chat model is not for the model it was trained from.
    if name.contains("-base") {
        return None;
    }
    let by_maker = MAKERS.iter().find_map(|maker| name.strip_prefix(maker)).unwrap_or(&name);
    let begins = |known: &&str| name.starts_with(known) || by_maker.starts_with(known);
    let (_, sampling) = RECOMMENDED.iter().find(|(known, _)| known.iter().any(begins))?;
    Some(*sampling)
}

/// `meta-llama/Llama-3.2-1B-Instruct`, `Llama 3.2 1B Instruct` and `llama-3.2-1b-instruct-q4_k_m.gguf` begin alike.
fn plain(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.to_ascii_lowercase().replace([' ', '_'], "-")
}

/// In front of some names.
const MAKERS: [&str; 4] = ["meta-", "mistralai-", "qwen-", "tinyllama-"];

/// (how the names begin, what their makers recommend); the first that fits counts.
const RECOMMENDED: &[(&[&str], Sampling)] = &[
    // Model card. Their GGUF files bear the name of the training run.
    (
        &[
            "smollm2-135m-instruct",
            "smollm2-135m-8k-",
            "smollm2-360m-instruct",
            "smollm2-360m-8k-",
            "smollm2-1.7b-instruct",
            "smollm2-1.7b-8k-",
        ],
        Sampling { temperature: 0.2, top_p: 0.9, ..Sampling::NEUTRAL },
    ),
    // generation_config.json, up to Llama's. The small ones of Qwen repeat themselves more easily.
    (
        &["qwen2.5-0.5b-instruct", "qwen2.5-1.5b-instruct", "qwen2-0.5b-instruct", "qwen2-1.5b-instruct"],
        Sampling { repetition_penalty: 1.1, ..QWEN },
    ),
    (
        &[
            "qwen2.5-3b-instruct",
            "qwen2.5-7b-instruct",
            "qwen2.5-14b-instruct",
            "qwen2.5-32b-instruct",
            "qwen2.5-72b-instruct",
            "qwen2-7b-instruct",
            "qwen2-72b-instruct",
        ],
        Sampling { repetition_penalty: 1.05, ..QWEN },
    ),
    (&["qwen3-4b-instruct-2507"], QWEN),
    // The other Qwen3 models think.
    (
        &["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"],
        Sampling { temperature: 0.6, top_p: 0.95, ..QWEN },
    ),
    (&["deepseek-r1-distill-"], Sampling { temperature: 0.6, top_p: 0.95, ..Sampling::NEUTRAL }),
    (
        &[
            "llama-2-7b",
            "llama-2-13b",
            "llama-2-70b",
            "llama-3-8b",
            "llama-3-70b",
            "llama-3.1-",
            "llama-3.2-",
            "llama-3.3-",
        ],
        Sampling { temperature: 0.6, top_p: 0.9, ..Sampling::NEUTRAL },
    ),
    // The default of its makers' own API; for Nemo its model card.
    (&["mistral-7b-instruct"], Sampling { temperature: 0.7, ..Sampling::NEUTRAL }),
    (&["mistral-nemo-instruct"], Sampling { temperature: 0.3, ..Sampling::NEUTRAL }),
    // Model card.
    (&["tinyllama-1.1b-chat"], Sampling { temperature: 0.7, top_p: 0.95, top_k: Some(50), ..Sampling::NEUTRAL }),
];

const QWEN: Sampling = Sampling { temperature: 0.7, top_p: 0.8, top_k: Some(20), ..Sampling::NEUTRAL };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_models_are_found_by_any_of_their_names() {
        // (name, temperature, top_p, top_k, repetition_penalty)
        let table: [(&str, f32, f32, Option<u32>, f32); 21] = [
            ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.2, 0.9, None, 1.0),
            ("SmolLM2-135M-Instruct.Q4_1.gguf", 0.2, 0.9, None, 1.0),
            ("Smollm2 135M 8k Lc100K Mix1 Ep2", 0.2, 0.9, None, 1.0),
            ("SmolLM2 1.7B Instruct", 0.2, 0.9, None, 1.0),
            ("Qwen/Qwen2.5-0.5B-Instruct", 0.7, 0.8, Some(20), 1.1),
            ("qwen2.5-0.5b-instruct-q4_k_m.gguf", 0.7, 0.8, Some(20), 1.1),
            ("Qwen2.5 7B Instruct", 0.7, 0.8, Some(20), 1.05),
            ("Qwen2-0.5B-Instruct", 0.7, 0.8, Some(20), 1.1),
            ("Qwen/Qwen3-0.6B", 0.6, 0.95, Some(20), 1.0),
            ("Qwen3-0.6B-Q4_K_M.gguf", 0.6, 0.95, Some(20), 1.0),
            ("Qwen3-4B-Thinking-2507", 0.6, 0.95, Some(20), 1.0),
            ("Qwen3-4B-Instruct-2507", 0.7, 0.8, Some(20), 1.0),
            ("meta-llama/Llama-3.2-1B-Instruct", 0.6, 0.9, None, 1.0),
            ("Meta-Llama-3.1-8B-Instruct", 0.6, 0.9, None, 1.0),
            ("Llama 3.2 1B Instruct", 0.6, 0.9, None, 1.0),
            ("Llama-2-7b-chat-hf", 0.6, 0.9, None, 1.0),
            ("mistralai/Mistral-7B-Instruct-v0.3", 0.7, 1.0, None, 1.0),
            ("mistralai_mistral-7b-instruct-v0.2", 0.7, 1.0, None, 1.0),
            ("Mistral-Nemo-Instruct-2407", 0.3, 1.0, None, 1.0),
            ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 0.7, 0.95, Some(50), 1.0),
            ("tinyllama_tinyllama-1.1b-chat-v1.0", 0.7, 0.95, Some(50), 1.0),
        ];
        for (name, temperature, top_p, top_k, repetition_penalty) in table {
            let expected = Sampling { temperature, top_p, top_k, min_p: 0.0, repetition_penalty };
            assert_eq!(recommended(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn others_are_not() {
        for name in
            ["", "/", "tiny", "SmolLM2-135M", "Qwen3-0.6B-Base", "Qwen2.5-Math-7B-Instruct", "dolphin-llama-3.1-8b"]
        {
            assert_eq!(recommended(name), None, "{name}");
        }
    }
}
