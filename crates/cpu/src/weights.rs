//! A model's weights, in the order and form in which kernels read them.

pub(crate) mod bf12;
pub(crate) mod chunks;
pub(crate) mod element;
mod embedding;
mod load;
mod matrix;
mod source;
pub(crate) mod tile_reader;

pub(crate) use embedding::EmbeddingTable;
pub use load::Progress;
pub(crate) use load::{DecoderWeights, Layer, Projection};
pub(crate) use matrix::{Columns, Matrix};
pub use source::Weights;
pub(crate) use source::{matrix, vector};
