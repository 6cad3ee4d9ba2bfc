//! GGUF files of a few hundred numbers, written byte by byte.

use std::fs;
use std::path::PathBuf;

use baton_model::{Model, ModelError, ModelSource};

use crate::tiny::{self, Directory};

#[derive(Clone)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Text(&'static str),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// The fastest-changing dimension first.
    pub(crate) sizes: Vec<u64>,
    pub(crate) kind: u32,
    /// The offset in the table, if it is not the right one.
    pub(crate) offset: Option<u64>,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Gguf {
    pub(crate) version: u32,
    pub(crate) pairs: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

const ALIGNMENT: usize = 32;
pub(crate) const BF16: u32 = 30;

impl Gguf {
    /// The decoder of [`tiny::CONFIG`], with its weights.
    pub(crate) fn qwen2() -> Self {
        let pair = |name: &str, value| (name.to_owned(), value);
        let tokens: Vec<String> = (0..20).map(|id| format!("t{id}")).collect();
        let pairs = vec![
            pair("general.architecture", Value::Text("qwen2")),
            pair("qwen2.embedding_length", Value::U32(8)),
            pair("qwen2.block_count", Value::U32(2)),
            pair("qwen2.attention.head_count", Value::U32(4)),
            pair("qwen2.attention.head_count_kv", Value::U32(2)),
            pair("qwen2.feed_forward_length", Value::U32(12)),
            pair("qwen2.context_length", Value::U32(32768)),
            pair("qwen2.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
            pair("tokenizer.ggml.model", Value::Text("gpt2")),
            pair("tokenizer.ggml.pre", Value::Text("qwen2")),
            pair("tokenizer.ggml.tokens", Value::Texts(tokens)),
            pair("tokenizer.ggml.token_type", Value::I32s(vec![1; 20])),
            pair("tokenizer.ggml.merges", Value::Texts(vec!["t 1".into()])),
            pair("tokenizer.ggml.eos_token_id", Value::U32(3)),
            pair("tokenizer.chat_template", Value::Text("{{ messages }}")),
        ];
        let tensors = tiny::tensors().into_iter().map(|tensor| Tensor {
            name: gguf_name(&tensor.name),
            sizes: tensor.shape.iter().rev().map(|size| *size as u64).collect(),
            kind: BF16,
            offset: None,
            bytes: tensor.bytes,
        });
        Self { version: 3, pairs, tensors: tensors.collect() }
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        match self.pairs.iter_mut().find(|(name, _)| name == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key.to_owned(), value)),
        }
    }

    /// The same under another architecture's name.
    pub(crate) fn rename_architecture(&mut self, architecture: &'static str) {
        for (key, _) in &mut self.pairs {
            *key = key.replace("qwen2.", &format!("{architecture}."));
        }
        self.set("general.architecture", Value::Text(architecture));
    }

    pub(crate) fn without(&mut self, key: &str) {
        self.pairs.retain(|(name, _)| name != key);
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            text(&mut file, key);
            value.write(&mut file);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            text(&mut file, &tensor.name);
            file.extend((tensor.sizes.len() as u32).to_le_bytes());
            tensor.sizes.iter().for_each(|size| file.extend(size.to_le_bytes()));
            file.extend(tensor.kind.to_le_bytes());
            file.extend(tensor.offset.unwrap_or(offset as u64).to_le_bytes());
            offset += tensor.bytes.len().next_multiple_of(ALIGNMENT);
        }
        file
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = self.header();
        for tensor in &self.tensors {
            file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
            file.extend(&tensor.bytes);
        }
        file
    }

    pub(crate) fn open(&self, directory: &Directory) -> Result<Model, ModelError> {
        open(directory, &self.bytes())
    }

    pub(crate) fn error(&self, directory: &Directory) -> String {
        let error = self.open(directory).and_then(|model| model.files.tokenizer().map(drop)).err();
        error.expect("this model must be refused").to_string()
    }
}

/// As the only file of a directory.
pub(crate) fn open(directory: &Directory, bytes: &[u8]) -> Result<Model, ModelError> {
    let path = PathBuf::from(directory.path("tiny.gguf"));
    fs::write(&path, bytes).unwrap();
    Model::open(&ModelSource::resolve(path.to_str().unwrap()).unwrap())
}

impl Value {
    fn write(&self, file: &mut Vec<u8>) {
        let kind = |file: &mut Vec<u8>, number: u32| file.extend(number.to_le_bytes());
        let list = |file: &mut Vec<u8>, number: u32, count: usize| {
            file.extend(9_u32.to_le_bytes());
            file.extend(number.to_le_bytes());
            file.extend((count as u64).to_le_bytes());
        };
        match self {
            Self::U32(number) => {
                kind(file, 4);
                file.extend(number.to_le_bytes());
            }
            Self::F32(number) => {
                kind(file, 6);
                file.extend(number.to_le_bytes());
            }
            Self::Text(value) => {
                kind(file, 8);
                text(file, value);
            }
            Self::Texts(texts) => {
                list(file, 8, texts.len());
                texts.iter().for_each(|item| text(file, item));
            }
            Self::I32s(numbers) => {
                list(file, 5, numbers.len());
                numbers.iter().for_each(|number| file.extend(number.to_le_bytes()));
            }
        }
    }
}

fn text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.as_bytes());
}

fn gguf_name(name: &str) -> String {
    let renamed = [
        ("model.layers.", "blk."),
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"),
        ("mlp.", "ffn_"),
        ("_proj", ""),
    ];
    renamed.into_iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}
