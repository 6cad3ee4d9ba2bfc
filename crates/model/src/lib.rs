//! Model directories. Files arrive (a Hugging Face directory, a single file or the bundled model); a [`DecoderSpec`] and
//! named [`TensorView`]s leave for `compute`, and tokenizer files for `text`.

mod spec;

pub use spec::{DecoderSpec, Dtype, LayerPart, Part, RopeScaling, RopeSpec, TensorView};
