//! Valid GGUF files, and files that are broken in one place.

use baton_core::{TokenId, VocabularyKind};
use baton_model::{Dtype, LayerPart, Model, ModelSource, Part, RopeScaling, RowOrder, TokenizerFiles};

use crate::tiny::Directory;
use crate::tiny_gguf::{Gguf, Tensor, Value};

#[test]
fn it_is_the_model_that_the_directory_has() {
    let directory = Directory::whole("gguf_same");
    let whole = directory.open().unwrap();
    for version in [2, 3] {
        let model = Gguf { version, ..Gguf::qwen2() }.open(&directory).unwrap();
        assert_eq!((model.name(), model.spec.dtype), ("tiny", Dtype::Bf16));
        assert_eq!(model.spec, whole.spec);
        assert_eq!(model.weights_id(), whole.weights_id());
        for part in model.spec.parts() {
            assert_eq!(model.tensor(part).unwrap().bytes, whole.tensor(part).unwrap().bytes, "{part:?}");
        }
    }
}

#[test]
fn tokenizer_and_template_are_inside() {
    let mut gguf = Gguf::qwen2();
    gguf.set("tokenizer.ggml.eot_token_id", Value::U32(7));
    let mut tokens: Vec<String> = (0..20).map(|id| format!("t{id}")).collect();
    let mut types = vec![1; 20];
    // One token that ends a text, and one that only has a similar name.
    (tokens[9], types[9]) = ("<|endoftext|>".into(), 3);
    (tokens[10], types[10]) = ("<|im_end|>".into(), 1);
    gguf.set("tokenizer.ggml.tokens", Value::Texts(tokens.clone()));
    gguf.set("tokenizer.ggml.token_type", Value::I32s(types));
    gguf.set("general.sampling.temp", Value::F32(0.5));
    let model = gguf.open(&Directory::new("gguf_tokenizer")).unwrap();
    assert_eq!(model.generation.eos_token_ids, [TokenId(3), TokenId(7), TokenId(9)]);
    assert_eq!((model.generation.sampling.temperature, model.generation.sampling.top_p), (0.5, 1.0));
    let TokenizerFiles::Gguf { vocabulary, chat_template } = model.files.tokenizer().unwrap() else {
        panic!("not of a GGUF file");
    };
    assert_eq!(chat_template, Some("{{ messages }}"));
    assert_eq!(vocabulary.kind, VocabularyKind::Bpe { pre: Some("qwen2".into()) });
    assert_eq!((vocabulary.tokens, vocabulary.merges), (tokens, vec!["t 1".to_owned()]));
    assert_eq!((vocabulary.eos, vocabulary.bos), (Some(TokenId(3)), None));
}

#[test]
fn llama_has_rotary_pairs_together() {
    let mut gguf = Gguf::qwen2();
    gguf.rename_architecture("llama");
    gguf.tensors.retain(|tensor| tensor.name != "output.weight");
    let factors: Vec<u8> = 2_f32.to_le_bytes().to_vec();
    gguf.tensors.push(Tensor {
        name: "rope_freqs.weight".into(),
        sizes: vec![1],
        kind: 0,
        offset: None,
        bytes: factors,
    });
    let model = gguf.open(&Directory::new("gguf_llama")).unwrap();
    assert_eq!(model.spec.rope.scaling, RopeScaling::Factors(vec![2.0]));
    assert!(model.spec.tied_head && model.spec.qkv_bias && !model.spec.o_bias);
    let rows = |part| model.tensor(Part::Layer(0, part)).unwrap().rows;
    for part in [LayerPart::Q, LayerPart::K, LayerPart::QBias, LayerPart::KBias] {
        assert_eq!(rows(part), RowOrder::PairsTogether { head_dim: 2 }, "{part:?}");
    }
    for part in [LayerPart::V, LayerPart::O, LayerPart::VBias, LayerPart::Gate] {
        assert_eq!(rows(part), RowOrder::Plain, "{part:?}");
    }
}

#[test]
fn qwen3_norms_its_heads() {
    let mut gguf = Gguf::qwen2();
    gguf.rename_architecture("qwen3");
    gguf.tensors.retain(|tensor| !tensor.name.ends_with(".bias"));
    let directory = Directory::new("gguf_qwen3");
    assert_eq!(gguf.error(&directory), "tiny.gguf: tensor blk.0.attn_q_norm.weight: missing");
    for name in ["blk.0.attn_q_norm", "blk.0.attn_k_norm", "blk.1.attn_q_norm", "blk.1.attn_k_norm"] {
        let bytes = [1.5_f32, 2.5].map(f32::to_le_bytes).concat();
        gguf.tensors.push(Tensor { name: format!("{name}.weight"), sizes: vec![2], kind: 0, offset: None, bytes });
    }
    let model = gguf.open(&directory).unwrap();
    assert!(model.spec.qk_norm && !model.spec.qkv_bias);
    let norm = model.tensor(Part::Layer(1, LayerPart::KNorm)).unwrap();
    assert_eq!((norm.vector(), norm.rows), (vec![1.5, 2.5], RowOrder::Plain));
}

#[test]
fn a_directory_with_one_gguf_file_is_that_model() {
    let directory = Directory::new("gguf_directory");
    let bytes = Gguf::qwen2().bytes();
    directory.write("a.gguf", &bytes);
    directory.write("config.json", "{}");
    assert_eq!(Model::open(&directory.source()).unwrap().name(), "a");
    directory.write("b.GGUF", &bytes);
    let error = ModelSource::resolve(&directory.path("")).unwrap_err().to_string();
    assert!(error.ends_with("there are several models in this directory; name one: a.gguf, b.GGUF"), "{error}");
}

#[test]
fn what_is_wrong_is_named() {
    type Change = fn(&mut Gguf);
    let supported = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";
    let table: [(Change, String); 22] = [
        (|gguf| gguf.version = 1, "GGUF version 1 is not supported; supported are 2 and 3 (at byte 8)".into()),
        (
            |gguf| gguf.version = 3_u32.swap_bytes(),
            "it was made for big-endian machines, which is not supported (at byte 8)".into(),
        ),
        (
            |gguf| gguf.set("general.architecture", Value::Text("mamba")),
            "general.architecture: \"mamba\" is not supported; supported are llama, qwen2, qwen3".into(),
        ),
        (|gguf| gguf.without("general.architecture"), "general.architecture: expected a name, got nothing".into()),
        (
            |gguf| gguf.set("qwen2.attention.head_count", Value::I32s(vec![4, 4])),
            "qwen2.attention.head_count: expected a positive integer, got [4,4]".into(),
        ),
        (
            |gguf| gguf.set("qwen2.expert_count", Value::U32(8)),
            "qwen2.expert_count: mixtures of experts are not supported".into(),
        ),
        (
            |gguf| gguf.set("qwen2.rope.dimension_count", Value::U32(4)),
            "qwen2.rope.dimension_count: 4 is not supported; only the size of a head, 2, is".into(),
        ),
        (
            |gguf| gguf.set("qwen2.rope.scaling.type", Value::Text("yarn")),
            "qwen2.rope.scaling.type: \"yarn\" is not supported; supported are none and linear".into(),
        ),
        (
            |gguf| gguf.set("split.count", Value::U32(3)),
            "split.count: this is one of 3 parts; join them with llama-gguf-split --merge".into(),
        ),
        (
            |gguf| gguf.set("general.alignment", Value::U32(48)),
            "general.alignment: expected a power of two up to 1048576, got 48".into(),
        ),
        (
            |gguf| gguf.without("tokenizer.ggml.model"),
            "tokenizer.ggml.model: missing: this file has no tokenizer".into(),
        ),
        (
            |gguf| gguf.set("tokenizer.ggml.model", Value::Text("bert")),
            "tokenizer.ggml.model: \"bert\" is not supported; supported are gpt2 and llama".into(),
        ),
        (
            |gguf| gguf.set("tokenizer.ggml.token_type", Value::I32s(vec![1; 19])),
            "tokenizer.ggml.token_type: 19 for 20 tokens".into(),
        ),
        (
            |gguf| gguf.set("tokenizer.ggml.eos_token_id", Value::U32(20)),
            "tokenizer.ggml.eos_token_id: expected a token id below 20, got 20".into(),
        ),
        (
            |gguf| gguf.set("tokenizer.ggml.tokens", Value::Texts(vec!["t".into(); 21])),
            "tokenizer.ggml.tokens: 21 tokens, but token_embd.weight has 20 rows".into(),
        ),
        (
            |gguf| gguf.tensor("blk.0.attn_q.weight").kind = 16,
            format!("tensor blk.0.attn_q.weight: the type IQ2_XXS is not supported; supported are {supported}"),
        ),
        (
            |gguf| gguf.tensor("blk.0.attn_q.weight").kind = 12,
            "tensor blk.0.attn_q.weight: rows of 8 values cannot be Q4_K, which has blocks of 256".into(),
        ),
        (
            |gguf| gguf.tensor("blk.0.attn_q.weight").offset = Some(0),
            "tensor token_embd.weight: overlaps with blk.0.attn_q.weight".into(),
        ),
        (
            |gguf| gguf.tensor("output_norm.weight").offset = Some(1 << 40),
            "tensor output_norm.weight: its 16 bytes from 1099511627776 on lie outside of the file; was it cut off?"
                .into(),
        ),
        (
            |gguf| gguf.tensor("output_norm.weight").offset = Some(7),
            "tensor output_norm.weight: begins at 7, which is not a multiple of 32".into(),
        ),
        (
            |gguf| gguf.tensor("blk.1.ffn_down.weight").sizes = vec![8, 12],
            "tensor blk.1.ffn_down.weight: the metadata gives it the shape [8, 12], the file has [12, 8]".into(),
        ),
        (
            |gguf| gguf.tensors.retain(|tensor| tensor.name != "blk.1.attn_k.bias"),
            "tensor blk.1.attn_k.bias: missing".into(),
        ),
    ];
    let directory = Directory::new("gguf_wrong");
    for (change, message) in table {
        let mut gguf = Gguf::qwen2();
        change(&mut gguf);
        assert_eq!(gguf.error(&directory), format!("tiny.gguf: {message}"));
    }
}

#[test]
fn what_is_there_twice_is_named() {
    let directory = Directory::new("gguf_twice");
    let mut gguf = Gguf::qwen2();
    gguf.tensors[4].name = gguf.tensors[3].name.clone();
    let (twice, name) = (gguf.error(&directory), &gguf.tensors[3].name);
    assert_eq!(twice, format!("tiny.gguf: tensor {name}: occurs twice"));
    let mut gguf = Gguf::qwen2();
    gguf.pairs.push(gguf.pairs[0].clone());
    let error = gguf.error(&directory);
    assert!(error.starts_with("tiny.gguf: the key \"general.architecture\" occurs twice"), "{error}");
}
