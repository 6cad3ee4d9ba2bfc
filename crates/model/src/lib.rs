//! Models as files. They arrive as a Hugging Face directory, a GGUF file or the bundled model; a [`DecoderSpec`] and named
//! [`TensorView`]s leave for a backend, and the files of the tokenizer for `text`.
//!
//! [`ModelSource`] locates a model, [`ModelFiles`] holds the small files (all that a gateway needs), [`Model`] also maps the weights,
//! after checking that each one exists and has its shape.

mod architecture;
mod bundled;
mod config;
mod dtype;
mod error;
mod files;
mod generation;
mod gguf;
mod mapped;
mod model;
mod parts;
mod recommended;
mod rope;
mod source;
mod spec;
mod tensor;
mod weights;
mod weights_id;

pub use bundled::{DEFAULT_MODEL, bundled_names};
pub use config::Config;
pub use dtype::Dtype;
pub use error::ModelError;
pub use files::{ModelFiles, TokenizerFiles};
pub use generation::{GenerationConfig, Sampling, SamplingSource};
pub use mapped::TensorFile;
pub use model::Model;
pub use source::ModelSource;
pub use spec::{DecoderSpec, LayerPart, Part, RopeScaling, RopeSpec};
pub use tensor::{RowOrder, TensorView};
