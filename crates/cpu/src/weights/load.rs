//! A model's weights in the order kernels read them. A checkpoint arrives as named row-major tensors; [`DecoderWeights`]
//! leaves: q, k and v in one matrix, gate and up side by side, all packed into panels of 16 output columns, and each matrix
//! cut by its output columns into one part per shard.

use baton_model::{DecoderSpec, LayerPart, Part, TensorView};

use super::columns::{Order, RowSlice};
use super::matrix::{Arena, Matrix, PackOptions, PanelTypes, pack, packed_elements};
use super::phase::Phase;
use super::source::{Weights, matrix, vector};
use crate::shards::{Deal, Shards};
use crate::simd::vector::{LANES, padded};
use crate::threads::team::Team;
use crate::weights::element::Element;
use baton_backend::BackendError;

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Of the weights' bytes, 0 to 1.
    pub fraction: f32,
}

pub(crate) struct DecoderWeights<E> {
    pub(crate) layers: Vec<Layer<E>>,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) head: Sharded<E>,
}

pub(crate) struct Layer<E> {
    pub(crate) attention_norm: Vec<f32>,
    /// In each shard: its heads of q, then of k, then of v.
    pub(crate) qkv: Sharded<E>,
    pub(crate) head_norms: Option<HeadNorms>,
    pub(crate) o: Sharded<E>,
    pub(crate) ffn_norm: Vec<f32>,
    /// Panels of gate and up alternate.
    pub(crate) gate_up: Sharded<E>,
    pub(crate) down: Sharded<E>,
}

/// One head long each.
pub(crate) struct HeadNorms {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
}

/// A part per shard, side by side in the output.
pub(crate) type Sharded<E> = Vec<Projection<E>>;

pub(crate) struct Projection<E> {
    pub(crate) matrix: Matrix<E>,
    /// As long as the padded output.
    pub(crate) bias: Option<Vec<f32>>,
    /// Where its output begins in that of all shards.
    pub(crate) first_column: usize,
}

/// Output rows of each matrix, which are other matrices' depths.
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

    /// Elements of one shard's part of all matrices.
    fn elements<E: Element>(&self, layers: usize, shards: &Shards, shard: usize) -> usize {
        let columns = |rows| shards.rows(Deal::Panels, rows, shard).len();
        let qkv = (shards.heads + 2 * shards.kv_heads) * shards.head_dim;
        let layer = packed_elements::<E>(qkv, self.hidden)
            + packed_elements::<E>(columns(self.hidden), self.q)
            + packed_elements::<E>(2 * padded(columns(self.ffn)), self.hidden)
            + packed_elements::<E>(columns(self.hidden), self.ffn);
        layers * layer + packed_elements::<E>(columns(self.vocab), self.hidden)
    }
}

impl<E: Element> DecoderWeights<E> {
    /// `prefers_bf12` says whether weights of this size are kept in 12 bits; it is called once.
    pub(crate) fn load(
        weights: &dyn Weights,
        shards: Shards,
        prefers_bf12: impl Fn(usize) -> bool,
        team: &mut Team,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BackendError> {
        let spec = weights.spec();
        let shapes = Shapes::of(spec);
        let elements = (0..shards.count).map(|shard| shapes.elements::<E>(spec.layers, &shards, shard));
        let prefers_bf12 = prefers_bf12(elements.clone().sum::<usize>() * size_of::<E>());
        let arenas = elements.map(|elements| Arena::new(elements, prefers_bf12));
        let mut loader = Loader { weights, shards, team, arenas: arenas.collect::<Result<_, _>>()?, progress };
        let layers = (0..spec.layers).map(|index| loader.layer(index, &shapes)).collect::<Result<_, _>>()?;
        let matrix = if spec.tied_head { Part::Embedding } else { Part::Head };
        let head = OutputRows { matrix, bias: None, rows: shapes.vocab, deal: Deal::Panels };
        let head = loader.projection(Order::Stacked, shapes.hidden, &[head])?;
        Ok(Self { layers, final_norm: vector(weights, Part::FinalNorm, shapes.hidden)?, head })
    }
}

impl<E: Element> DecoderWeights<E> {
    /// Bytes of weights that a phase reads.
    pub(crate) fn bytes(&self, phase: Phase) -> usize {
        let layers =
            |part: fn(&Layer<E>) -> &Sharded<E>| self.layers.iter().flat_map(part).map(Projection::bytes).sum();
        match phase {
            Phase::Qkv => layers(|layer| &layer.qkv),
            Phase::Output => layers(|layer| &layer.o),
            Phase::GateUp => layers(|layer| &layer.gate_up),
            Phase::Down => layers(|layer| &layer.down),
            Phase::Logits => self.head.iter().map(Projection::bytes).sum(),
            Phase::Embed | Phase::StoreKv | Phase::Attention => 0,
        }
    }
}

impl<E: Element> DecoderWeights<E> {
    pub(crate) fn has_quantized_layers(&self) -> bool {
        let in_layer =
            |layer: &Layer<E>| [&layer.qkv, &layer.o, &layer.gate_up, &layer.down].into_iter().any(are_quantized);
        self.layers.iter().any(in_layer)
    }

    pub(crate) fn has_quantized_head(&self) -> bool {
        are_quantized(&self.head)
    }
}

fn are_quantized<E: Element>(parts: &Sharded<E>) -> bool {
    parts.iter().any(|part| part.matrix.is_quantized())
}

impl<E: Element> Projection<E> {
    fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}

struct Loader<'a, E> {
    weights: &'a dyn Weights,
    shards: Shards,
    team: &'a mut Team,
    /// One per shard.
    arenas: Vec<Arena<E>>,
    progress: &'a mut dyn FnMut(Progress),
}

/// What becomes columns of a projection, or some of them.
struct OutputRows {
    matrix: Part,
    bias: Option<Part>,
    rows: usize,
    deal: Deal,
}

impl<E: Element> Loader<'_, E> {
    fn layer(&mut self, index: usize, shapes: &Shapes) -> Result<Layer<E>, BackendError> {
        use LayerPart as P;
        let spec = self.weights.spec();
        let (qkv, o, mlp) = (spec.qkv_bias, spec.o_bias, spec.mlp_bias);
        let &Shapes { q, kv, hidden, ffn, .. } = shapes;
        let part = |part| Part::Layer(index, part);
        let of = |deal, matrix, bias, has_bias: bool, rows| {
            let bias = has_bias.then_some(part(bias));
            OutputRows { matrix: part(matrix), bias, rows, deal }
        };
        Ok(Layer {
            attention_norm: vector(self.weights, part(P::AttentionNorm), hidden)?,
            qkv: self.projection(
                Order::Stacked,
                hidden,
                &[
                    of(Deal::QueryHeads, P::Q, P::QBias, qkv, q),
                    of(Deal::KvHeads, P::K, P::KBias, qkv, kv),
                    of(Deal::KvHeads, P::V, P::VBias, qkv, kv),
                ],
            )?,
            head_norms: self.head_norms(index)?,
            o: self.projection(Order::Stacked, q, &[of(Deal::Panels, P::O, P::OBias, o, hidden)])?,
            ffn_norm: vector(self.weights, part(P::FfnNorm), hidden)?,
            gate_up: self.projection(
                Order::AlternatingPanels,
                hidden,
                &[of(Deal::Panels, P::Gate, P::GateBias, mlp, ffn), of(Deal::Panels, P::Up, P::UpBias, mlp, ffn)],
            )?,
            down: self.projection(Order::Stacked, ffn, &[of(Deal::Panels, P::Down, P::DownBias, mlp, hidden)])?,
        })
    }

    fn head_norms(&self, layer: usize) -> Result<Option<HeadNorms>, BackendError> {
        let spec = self.weights.spec();
        let norm = |part| vector(self.weights, Part::Layer(layer, part), spec.head_dim);
        match spec.qk_norm {
            true => Ok(Some(HeadNorms { q: norm(LayerPart::QNorm)?, k: norm(LayerPart::KNorm)? })),
            false => Ok(None),
        }
    }

    /// Each shard has whole heads of stacked tensors, which may end inside a panel.
    fn types(&self, order: Order, views: &[TensorView<'_>]) -> PanelTypes {
        let equal = views.windows(2).all(|two| two[0].dtype == two[1].dtype);
        match order {
            Order::Stacked if !equal && !self.shards.head_dim.is_multiple_of(LANES) => PanelTypes::Mixed,
            _ => PanelTypes::Uniform,
        }
    }

    /// One matrix per shard from the rows of one or more tensors.
    fn projection(&mut self, order: Order, depth: usize, parts: &[OutputRows]) -> Result<Sharded<E>, BackendError> {
        let views = parts.iter().map(|part| matrix(self.weights, part.matrix, part.rows, depth));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let biases = parts.iter().map(|part| part.bias.map(|bias| vector(self.weights, bias, part.rows)).transpose());
        let biases = biases.collect::<Result<Vec<_>, _>>()?;
        let slices_of = |shard| {
            let slices = parts
                .iter()
                .zip(&views)
                .map(|(part, &tensor)| RowSlice { tensor, rows: self.shards.rows(part.deal, part.rows, shard) });
            slices.collect()
        };
        let shards: Vec<Vec<_>> = (0..self.shards.count).map(slices_of).collect();
        let options = PackOptions { order, types: self.types(order, &views) };
        let matrices = pack(&mut self.arenas, options, depth, &shards, self.team)?;
        (self.progress)(Progress { fraction: Arena::fraction(&self.arenas) });
        let mut first_column = 0;
        let projections = matrices.into_iter().zip(&shards).map(|(matrix, slices)| {
            let (width, first) = (matrix.width(), first_column);
            first_column += match order {
                Order::Stacked => width,
                Order::AlternatingPanels => width / slices.len(),
            };
            Projection { matrix, bias: bias_of(order, width, slices, &biases), first_column: first }
        });
        Ok(projections.collect())
    }
}

/// The bias of one shard, in the order of its columns.
fn bias_of(order: Order, width: usize, slices: &[RowSlice<'_>], biases: &[Option<Vec<f32>>]) -> Option<Vec<f32>> {
    if biases.iter().all(Option::is_none) {
        return None;
    }
    let mut padded_bias = vec![0.0; width];
    for (which, (slice, bias)) in slices.iter().zip(biases).enumerate() {
        let Some(bias) = bias else { continue };
        for (row, value) in bias[slice.rows.clone()].iter().enumerate() {
            padded_bias[order.column(which, row, slices)] = *value;
        }
    }
    Some(padded_bias)
}
