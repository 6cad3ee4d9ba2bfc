//! Sampling defaults: what the files hold, else what is known of the model, else what is usual for the format.

use baton_model::{GenerationConfig, ModelFiles, Sampling, SamplingSource};

use crate::tiny::{CONFIG, Directory};
use crate::tiny_gguf::{Gguf, Value};

const SMOLLM2: Sampling = Sampling { temperature: 0.2, top_p: 0.9, ..Sampling::NEUTRAL };

#[test]
fn of_gguf_files() {
    let open = |pairs: &[(&str, Value)]| {
        let mut gguf = Gguf::qwen2();
        pairs.iter().for_each(|(key, value)| gguf.set(key, value.clone()));
        gguf.open(&Directory::new("sampling_gguf")).unwrap().generation
    };
    let name = |name| ("general.name", Value::Text(name));
    let temperature = ("general.sampling.temp", Value::F32(0.5));
    let half = Sampling { temperature: 0.5, ..Sampling::NEUTRAL };
    for (pairs, sampling, source) in [
        (vec![], Sampling::LLAMA_CPP, SamplingSource::LlamaCpp),
        (vec![name("My Model")], Sampling::LLAMA_CPP, SamplingSource::LlamaCpp),
        (vec![name("SmolLM2 135M Instruct")], SMOLLM2, SamplingSource::Makers),
        (vec![temperature.clone()], half, SamplingSource::Model),
        (vec![name("SmolLM2 135M Instruct"), temperature], half, SamplingSource::Model),
        (vec![("general.sampling.top_k", Value::U32(0))], Sampling::NEUTRAL, SamplingSource::Model),
    ] {
        let found = open(&pairs);
        assert_eq!((found.sampling, found.source), (sampling, source));
    }
    assert_eq!(
        Sampling::LLAMA_CPP,
        Sampling { temperature: 0.8, top_p: 0.95, top_k: Some(40), min_p: 0.05, repetition_penalty: 1.0 }
    );
}

#[test]
fn a_gguf_file_is_known_by_its_own_name_whatever_it_is_served_as() {
    let directory = Directory::new("sampling_gguf_name");
    directory.write("SmolLM2-135M-Instruct.Q4_1.gguf", Gguf::qwen2().bytes());
    let files = ModelFiles::open(&directory.source()).unwrap().renamed("mine");
    let found = files.generation().unwrap();
    assert_eq!((found.sampling, found.source), (SMOLLM2, SamplingSource::Makers));
}

#[test]
fn of_directories() {
    let open = |directory: &str, origin: Option<&str>, generation: Option<&str>| -> GenerationConfig {
        let directory = Directory::whole(directory);
        if let Some(origin) = origin {
            directory.write("config.json", CONFIG.replacen('{', &format!(r#"{{"_name_or_path": "{origin}", "#), 1));
        }
        if let Some(generation) = generation {
            directory.write("generation_config.json", generation);
        }
        directory.open().unwrap().generation
    };
    let known = Some("HuggingFaceTB/SmolLM2-135M-Instruct");
    let half = Sampling { temperature: 0.5, ..Sampling::NEUTRAL };
    let greedy = Sampling { temperature: 0.0, ..Sampling::NEUTRAL };
    for (name, origin, generation, sampling, source) in [
        ("sampling_plain", None, None, Sampling::NEUTRAL, SamplingSource::Neutral),
        ("sampling_other", Some("me/mine"), Some("{}"), Sampling::NEUTRAL, SamplingSource::Neutral),
        ("sampling_origin", known, None, SMOLLM2, SamplingSource::Makers),
        ("sampling_origin", known, Some(r#"{"do_sample": true}"#), SMOLLM2, SamplingSource::Makers),
        ("smollm2-135m-instruct", None, Some(r#"{"eos_token_id": 3}"#), SMOLLM2, SamplingSource::Makers),
        ("sampling_said", known, Some(r#"{"temperature": 0.5}"#), half, SamplingSource::Model),
        ("sampling_greedy", known, Some(r#"{"do_sample": false}"#), greedy, SamplingSource::Model),
    ] {
        let found = open(name, origin, generation);
        assert_eq!((found.sampling, found.source), (sampling, source), "{name}");
    }
}
