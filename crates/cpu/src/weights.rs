//! A model's weights, in the order and form in which kernels read them.

pub(crate) mod bf12;
pub(crate) mod chunks;
mod columns;
pub(crate) mod element;
mod embedding;
pub(crate) mod format;
pub(crate) mod layout;
mod load;
mod matrix;
mod phase;
pub(crate) mod quant;
mod source;
pub(crate) mod tile_reader;

pub(crate) use columns::Columns;
pub(crate) use embedding::EmbeddingTable;
pub use load::Progress;
pub(crate) use load::{DecoderWeights, Layer, Projection};
pub(crate) use matrix::Matrix;
pub use phase::Phase;
pub use source::Weights;
pub(crate) use source::{matrix, vector};
