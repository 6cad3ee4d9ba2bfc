//! Errors of models. They are always caused by the files or by the given name, so trying again without a change gives the same
//! error.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ModelError {
    #[error(
        "no model {name:?}: there is no directory, .gguf or .safetensors file of that path, and the bundled models are: {bundled}"
    )]
    NotFound { name: String, bundled: String },
    #[error("{path}: {problem}")]
    NotAModel { path: String, problem: String },
    #[error("{file}: not found in {place}")]
    MissingFile { file: String, place: String },
    #[error("{file}: cannot be read: {source}")]
    Read { file: String, source: io::Error },
    #[error("{file}: not valid JSON: {source}")]
    Json { file: String, source: serde_json::Error },
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    #[error("{file}: {field}: {problem}")]
    Field { file: String, field: String, problem: String },
    #[error("{file}: tensor {tensor}: {problem}")]
    Tensor { file: String, tensor: String, problem: String },
    #[error("tensor parallelism {tp} does not fit this model: {problem}")]
    Tp { tp: usize, problem: String },
    #[error("this model has no {0:?}")]
    NoSuchPart(crate::Part),
}
