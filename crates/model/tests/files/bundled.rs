//! The bundled model, opened like any other.

use baton_core::TokenId;
use baton_model::{DEFAULT_MODEL, Dtype, LayerPart, Model, ModelFiles, ModelSource, Part, TokenizerFiles};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/storyteller-11m");

#[test]
fn it_opens_from_the_binary() {
    let model = Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap();
    assert_eq!(model.name(), "storyteller-11m");
    let spec = &model.spec;
    assert_eq!((spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.vocab), (6, 384, 6, 2, 4096));
    assert_eq!((spec.dtype, spec.tied_head), (Dtype::Bf16, true));
    assert_eq!(model.generation.eos_token_ids, [TokenId(0), TokenId(2)]);
    assert_eq!((model.generation.sampling.temperature, model.generation.max_new_tokens), (0.7, Some(256)));

    let parameters: usize = spec.parts().map(|part| model.tensor(part).unwrap().bytes.len() / 2).sum();
    assert_eq!(parameters, 11_015_040);
    assert_eq!(model.tensor(Part::Head).unwrap().bytes, model.tensor(Part::Embedding).unwrap().bytes);
    for absent in [Part::Layer(6, LayerPart::Q), Part::Layer(0, LayerPart::QBias)] {
        assert!(model.tensor(absent).is_err(), "{absent:?}");
    }
}

#[test]
fn binary_directory_and_file_are_the_same_model() {
    let file = format!("{DIRECTORY}/model.safetensors");
    let ids = [DEFAULT_MODEL, DIRECTORY, &file]
        .map(|name| Model::open(&ModelSource::resolve(name).unwrap()).unwrap().weights_id().to_owned());
    assert_eq!(ids[0].len(), 32);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_gateway_needs_only_the_small_files() {
    let files = ModelFiles::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap();
    assert_eq!(files.decoder().unwrap().max_context, 2048);
    assert_eq!(files.generation().unwrap().sampling.top_p, 0.95);
    let TokenizerFiles::HuggingFace { tokenizer, config, chat_template } = files.tokenizer().unwrap() else {
        panic!("the bundled model is a Hugging Face directory");
    };
    assert!(tokenizer.starts_with(b"{"));
    assert_eq!((config.is_some(), chat_template), (true, None));
}
