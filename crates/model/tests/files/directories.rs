//! Hugging Face directories with one file, with several, and with broken ones.

use crate::tiny::{CONFIG, Directory, Tensor, safetensors, tensors};
use baton_core::TokenId;
use baton_model::{Dtype, LayerPart, Model, ModelError, ModelFiles, ModelSource, Part, TokenizerFiles};
use safetensors::Dtype as FileDtype;

fn split(directory: &Directory) {
    let mut all = tensors();
    let second = all.split_off(10);
    let entries = |file: &str, tensors: &[Tensor]| {
        tensors.iter().map(|tensor| format!("{:?}: {file:?}", tensor.name)).collect::<Vec<_>>().join(", ")
    };
    let map = [entries("a-00001.safetensors", &all), entries("a-00002.safetensors", &second)].join(", ");
    directory.write("model.safetensors.index.json", format!(r#"{{"metadata": {{}}, "weight_map": {{{map}}}}}"#));
    directory.write("a-00001.safetensors", safetensors(&all));
    directory.write("a-00002.safetensors", safetensors(&second));
}

#[test]
fn one_file_or_many_are_the_same_model() {
    let whole = Directory::whole("one_file");
    let model = whole.open().unwrap();
    assert_eq!((model.name(), model.spec.dtype), ("one_file", Dtype::Bf16));
    assert_eq!(model.generation.eos_token_ids, [TokenId(3)]);
    let bias = model.tensor(Part::Layer(1, LayerPart::KBias)).unwrap();
    assert_eq!((bias.shape, bias.bytes.len()), (&[4][..], 8));

    let parts = Directory::new("many_files");
    parts.write("config.json", CONFIG);
    split(&parts);
    let sharded = parts.open().unwrap();
    assert_eq!(sharded.weights_id(), model.weights_id());
    for part in model.spec.parts() {
        assert_eq!(sharded.tensor(part).unwrap().bytes, model.tensor(part).unwrap().bytes, "{part:?}");
    }

    let file = ModelSource::resolve(&whole.path("model.safetensors")).unwrap();
    assert_eq!(Model::open(&file).unwrap().weights_id(), model.weights_id());
}

#[test]
fn another_model_has_another_id() {
    let directory = Directory::whole("ids");
    let original = directory.open().unwrap().weights_id().to_owned();

    for changed in [0, 5, tensors().len() - 1] {
        let mut tuned = tensors();
        *tuned[changed].bytes.last_mut().unwrap() ^= 1;
        directory.write("model.safetensors", safetensors(&tuned));
        assert_ne!(directory.open().unwrap().weights_id(), original, "{}", tuned[changed].name);
    }
    directory.write("model.safetensors", safetensors(&tensors()));
    assert_eq!(directory.open().unwrap().weights_id(), original);
    directory.write("config.json", CONFIG.replace("{", r#"{"rope_theta": 20000.0, "#));
    assert_ne!(directory.open().unwrap().weights_id(), original);
}

#[test]
fn the_type_is_that_of_the_weights() {
    let directory = Directory::whole("types");
    let mut mixed = tensors();
    for tensor in &mut mixed {
        if !tensor.name.contains("norm") {
            *tensor = Tensor::new(&tensor.name, &tensor.shape, FileDtype::F32);
        }
    }
    directory.write("model.safetensors", safetensors(&mixed));
    let model = directory.open().unwrap();
    assert_eq!(model.spec.dtype, Dtype::F32);
    assert_eq!(model.tensor(Part::FinalNorm).unwrap().dtype, Dtype::Bf16);
}

#[test]
fn a_tied_head_may_be_in_the_file_or_not() {
    let directory = Directory::whole("tied");
    directory.write("config.json", CONFIG.replace("{", r#"{"tie_word_embeddings": true, "#));
    let with = directory.open().unwrap();
    let mut without = tensors();
    without.retain(|tensor| tensor.name != "lm_head.weight");
    directory.write("model.safetensors", safetensors(&without));
    assert_eq!(directory.open().unwrap().weights_id(), with.weights_id());
    assert_eq!(with.tensor(Part::Head).unwrap().bytes, with.tensor(Part::Embedding).unwrap().bytes);
}

#[test]
fn missing_and_wrong_tensors_are_named() {
    type Change = fn(&mut Vec<Tensor>, usize);
    let directory = Directory::whole("tensors");
    let broken = |name: &str, change: Change| {
        let mut tensors = tensors();
        let index = tensors.iter().position(|tensor| tensor.name == name).unwrap();
        change(&mut tensors, index);
        directory.write("model.safetensors", safetensors(&tensors));
        directory.error()
    };
    let table: [(&str, Change, &str); 5] = [
        ("model.norm.weight", |tensors, index| drop(tensors.remove(index)), "missing"),
        ("lm_head.weight", |tensors, index| drop(tensors.remove(index)), "missing"),
        (
            "model.layers.1.mlp.down_proj.weight",
            |tensors, index| tensors[index].shape = vec![12, 8],
            "config.json gives it the shape [8, 12], the file has [12, 8]",
        ),
        (
            "model.layers.0.self_attn.q_proj.bias",
            |tensors, index| tensors[index].shape = vec![2, 4],
            "config.json gives it the shape [8], the file has [2, 4]",
        ),
        (
            "model.embed_tokens.weight",
            |tensors, index| tensors[index] = Tensor::new(&tensors[index].name, &[20, 8], FileDtype::F64),
            "expected F32, F16 or BF16, got F64",
        ),
    ];
    for (name, change, problem) in table {
        assert_eq!(broken(name, change), format!("model.safetensors: tensor {name}: {problem}"));
    }
}

#[test]
fn missing_files_are_named() {
    let directory = Directory::whole("missing");
    assert_eq!(
        directory.open().unwrap().files.tokenizer().unwrap_err().to_string(),
        format!("tokenizer.json: not found in {}", directory.source())
    );
    directory.remove("model.safetensors");
    assert_eq!(
        directory.error(),
        format!("model.safetensors or model.safetensors.index.json: not found in {}", directory.source())
    );
    split(&directory);
    directory.remove("a-00002.safetensors");
    assert_eq!(directory.error(), format!("a-00002.safetensors: not found in {}", directory.source()));
    directory.remove("config.json");
    assert_eq!(directory.error(), format!("config.json: not found in {}", directory.source()));
}

#[test]
fn a_broken_index_is_named() {
    let directory = Directory::whole("index");
    directory.remove("model.safetensors");
    let table = [
        ("{}", "weight_map: expected an object, got nothing"),
        (r#"{"weight_map": []}"#, "weight_map: expected an object, got []"),
        (r#"{"weight_map": {"x": 1}}"#, "weight_map.x: expected a file name, got 1"),
        (r#"{"weight_map": {"x": "../x"}}"#, r#"weight_map.x: expected a file name, got "../x""#),
        (r#"{"weight_map": {"x": ".."}}"#, r#"weight_map.x: expected a file name, got "..""#),
        (r#"{"weight_map": {}}"#, "tensor model.embed_tokens.weight: not listed in weight_map"),
    ];
    for (index, message) in table {
        directory.write("model.safetensors.index.json", index);
        assert_eq!(directory.error(), format!("model.safetensors.index.json: {message}"));
    }
}

#[test]
fn templates_beside_the_tokenizer() {
    let directory = Directory::whole("templates");
    directory.write("tokenizer.json", "{}");
    let template = || {
        let files = ModelFiles::open(&directory.source())?;
        match files.tokenizer()? {
            TokenizerFiles::HuggingFace { chat_template, .. } => Ok(chat_template.map(str::to_owned)),
            TokenizerFiles::Gguf { .. } => panic!("a Hugging Face directory"),
        }
    };
    let error = |template: Result<_, ModelError>| template.unwrap_err().to_string();
    assert_eq!(template().unwrap(), None);
    directory.write("chat_template.json", r#"{"chat_template": "json"}"#);
    assert_eq!(template().unwrap().unwrap(), "json");
    directory.write("chat_template.jinja", "jinja");
    assert_eq!(template().unwrap().unwrap(), "jinja");
    directory.write("chat_template.jinja", b"\xff");
    assert_eq!(error(template()), "chat_template.jinja: not valid UTF-8");
    directory.remove("chat_template.jinja");
    directory.write("chat_template.json", r#"{"chat_template": 1}"#);
    assert_eq!(error(template()), "chat_template.json: chat_template: expected a string, got 1");
}
