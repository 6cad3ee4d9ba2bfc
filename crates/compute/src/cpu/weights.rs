//! A model's weights in the order kernels read them. A checkpoint arrives as named row-major tensors; [`DecoderWeights`]
//! leaves: q, k and v in one matrix, gate and up side by side, all packed into panels of 16 output columns.

mod embedding;
mod matrix;
mod source;

use baton_model::{DecoderSpec, LayerPart, Part};

pub(crate) use embedding::EmbeddingTable;
pub(crate) use matrix::Matrix;
pub(crate) use source::Weights;
#[cfg(test)]
pub(crate) use source::read_values;

use self::matrix::{Arena, Order, packed_elements};
use self::source::{matrix, vector};
use super::element::Element;
use super::lanes::padded;
use super::team::Team;
use crate::ComputeError;

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Of the weights' bytes, 0 to 1.
    pub fraction: f32,
}

pub(crate) struct DecoderWeights<E> {
    pub(crate) layers: Vec<Layer<E>>,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) head: Projection<E>,
}

pub(crate) struct Layer<E> {
    pub(crate) attention_norm: Vec<f32>,
    /// Heads of q, then of k, then of v.
    pub(crate) qkv: Projection<E>,
    pub(crate) o: Projection<E>,
    pub(crate) ffn_norm: Vec<f32>,
    /// Panels of gate and up alternate.
    pub(crate) gate_up: Projection<E>,
    pub(crate) down: Projection<E>,
}

pub(crate) struct Projection<E> {
    pub(crate) matrix: Matrix<E>,
    /// As long as the padded output.
    pub(crate) bias: Option<Vec<f32>>,
}

/// Output rows of each matrix, with its depth, in the order they are packed.
struct Shapes {
    q: usize,
    kv: usize,
    hidden: usize,
    ffn: usize,
    vocab: usize,
}

impl Shapes {
    fn of(spec: &DecoderSpec) -> Self {
        Self {
            q: spec.heads * spec.head_dim,
            kv: spec.kv_heads * spec.head_dim,
            hidden: spec.hidden,
            ffn: spec.ffn,
            vocab: spec.vocab,
        }
    }

    fn elements(&self, layers: usize) -> usize {
        let layer = packed_elements(self.q + 2 * self.kv, self.hidden)
            + packed_elements(self.hidden, self.q)
            + packed_elements(2 * padded(self.ffn), self.hidden)
            + packed_elements(self.hidden, self.ffn);
        layers * layer + packed_elements(self.vocab, self.hidden)
    }
}

impl<E: Element> DecoderWeights<E> {
    pub(crate) fn load(
        weights: &dyn Weights,
        team: &mut Team,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, ComputeError> {
        let spec = weights.spec();
        let shapes = Shapes::of(spec);
        let mut loader = Loader { weights, team, arena: Arena::new(shapes.elements(spec.layers))?, progress };
        let layers = (0..spec.layers).map(|index| loader.layer(index, &shapes)).collect::<Result<_, _>>()?;
        let head_part = if spec.tied_head { Part::Embedding } else { Part::Head };
        let head = loader.projection(Order::Stacked, shapes.hidden, &[(head_part, None, shapes.vocab)])?;
        Ok(Self { layers, final_norm: vector(weights, Part::FinalNorm, shapes.hidden)?, head })
    }
}

struct Loader<'a, E> {
    weights: &'a dyn Weights,
    team: &'a mut Team,
    arena: Arena<E>,
    progress: &'a mut dyn FnMut(Progress),
}

impl<E: Element> Loader<'_, E> {
    fn layer(&mut self, index: usize, shapes: &Shapes) -> Result<Layer<E>, ComputeError> {
        use LayerPart as P;
        let spec = self.weights.spec();
        let (qkv, o, mlp) = (spec.qkv_bias, spec.o_bias, spec.mlp_bias);
        let &Shapes { q, kv, hidden, ffn, .. } = shapes;
        let part = |part| Part::Layer(index, part);
        let with = |matrix, bias, has_bias: bool, rows| (part(matrix), has_bias.then_some(part(bias)), rows);
        Ok(Layer {
            attention_norm: vector(self.weights, part(P::AttentionNorm), hidden)?,
            qkv: self.projection(
                Order::Stacked,
                hidden,
                &[with(P::Q, P::QBias, qkv, q), with(P::K, P::KBias, qkv, kv), with(P::V, P::VBias, qkv, kv)],
            )?,
            o: self.projection(Order::Stacked, q, &[with(P::O, P::OBias, o, hidden)])?,
            ffn_norm: vector(self.weights, part(P::FfnNorm), hidden)?,
            gate_up: self.projection(
                Order::AlternatingPanels,
                hidden,
                &[with(P::Gate, P::GateBias, mlp, ffn), with(P::Up, P::UpBias, mlp, ffn)],
            )?,
            down: self.projection(Order::Stacked, ffn, &[with(P::Down, P::DownBias, mlp, hidden)])?,
        })
    }

    /// One matrix from the rows of one or more tensors: (matrix, bias, rows) each.
    fn projection(
        &mut self,
        order: Order,
        depth: usize,
        parts: &[(Part, Option<Part>, usize)],
    ) -> Result<Projection<E>, ComputeError> {
        let views = parts.iter().map(|&(part, _, rows)| matrix(self.weights, part, rows, depth));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let packed = self.arena.pack(order, depth, &views, self.team)?;
        let bias = match parts.iter().any(|(_, bias, _)| bias.is_some()) {
            false => None,
            true => {
                let mut padded_bias = vec![0.0; packed.width()];
                for (which, &(_, bias, rows)) in parts.iter().enumerate() {
                    let Some(bias) = bias else { continue };
                    for (row, value) in vector(self.weights, bias, rows)?.into_iter().take(rows).enumerate() {
                        padded_bias[order.column(which, row, &views)] = value;
                    }
                }
                Some(padded_bias)
            }
        };
        (self.progress)(Progress { fraction: self.arena.fraction() });
        Ok(Projection { matrix: packed, bias })
    }
}
