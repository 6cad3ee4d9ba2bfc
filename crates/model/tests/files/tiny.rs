//! A decoder of a few hundred numbers, written to a directory and broken on purpose.

use std::fs;
use std::path::PathBuf;

use baton_model::{Model, ModelError, ModelSource};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

pub(crate) const CONFIG: &str = r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 20, "eos_token_id": 3}"#;

pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn new(name: &str, shape: &[usize], dtype: Dtype) -> Self {
        let length = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let bytes = (0..length).map(|index| (index * 31 + name.len() * 7) as u8).collect();
        Self { name: name.into(), shape: shape.into(), dtype, bytes }
    }
}

/// All tensors of [`CONFIG`], in bf16.
pub(crate) fn tensors() -> Vec<Tensor> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("model.embed_tokens.weight".into(), vec![20, 8]),
        ("model.norm.weight".into(), vec![8]),
        ("lm_head.weight".into(), vec![20, 8]),
    ];
    let layer: [(&str, &[usize]); 12] = [
        ("input_layernorm.weight", &[8]),
        ("self_attn.q_proj.weight", &[8, 8]),
        ("self_attn.k_proj.weight", &[4, 8]),
        ("self_attn.v_proj.weight", &[4, 8]),
        ("self_attn.q_proj.bias", &[8]),
        ("self_attn.k_proj.bias", &[4]),
        ("self_attn.v_proj.bias", &[4]),
        ("self_attn.o_proj.weight", &[8, 8]),
        ("post_attention_layernorm.weight", &[8]),
        ("mlp.gate_proj.weight", &[12, 8]),
        ("mlp.up_proj.weight", &[12, 8]),
        ("mlp.down_proj.weight", &[8, 12]),
    ];
    for index in 0..2 {
        shapes.extend(layer.map(|(name, shape)| (format!("model.layers.{index}.{name}"), shape.to_vec())));
    }
    shapes.iter().map(|(name, shape)| Tensor::new(name, shape, Dtype::BF16)).collect()
}

pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|tensor| (&tensor.name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Fresh and empty; `name` must be the test's own.
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _absent_at_first = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With [`CONFIG`] and its tensors in one file.
    pub(crate) fn whole(name: &str) -> Self {
        let directory = Self::new(name);
        directory.write("config.json", CONFIG);
        directory.write("model.safetensors", safetensors(&tensors()));
        directory
    }

    pub(crate) fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), bytes).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.0.join(file)).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    pub(crate) fn source(&self) -> ModelSource {
        ModelSource::resolve(self.0.to_str().unwrap()).unwrap()
    }

    pub(crate) fn open(&self) -> Result<Model, ModelError> {
        Model::open(&self.source())
    }

    pub(crate) fn error(&self) -> String {
        self.open().err().expect("this model must be refused").to_string()
    }
}
