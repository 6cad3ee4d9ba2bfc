//! The list of a decoder's weights, with their shapes.

use crate::spec::{DecoderSpec, LayerPart, Part};

impl DecoderSpec {
    /// Every weight, in the order in which a token meets them. A tied head is not listed.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<'_> {
        let layers = (0..self.layers).flat_map(|layer| {
            LAYER_PARTS.into_iter().filter(|part| self.has(*part)).map(move |part| Part::Layer(layer, part))
        });
        let head = (!self.tied_head).then_some(Part::Head);
        std::iter::once(Part::Embedding).chain(layers).chain([Part::FinalNorm]).chain(head)
    }

    /// Row-major; a matrix is `[out, in]`.
    pub fn shape(&self, part: Part) -> Vec<usize> {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        match part {
            Part::Embedding | Part::Head => vec![self.vocab, self.hidden],
            Part::FinalNorm => vec![self.hidden],
            Part::Layer(_, part) => match part {
                LayerPart::AttentionNorm | LayerPart::FfnNorm | LayerPart::OBias | LayerPart::DownBias => {
                    vec![self.hidden]
                }
                LayerPart::Q => vec![q, self.hidden],
                LayerPart::K | LayerPart::V => vec![kv, self.hidden],
                LayerPart::O => vec![self.hidden, q],
                LayerPart::QBias => vec![q],
                LayerPart::KBias | LayerPart::VBias => vec![kv],
                LayerPart::QNorm | LayerPart::KNorm => vec![self.head_dim],
                LayerPart::Gate | LayerPart::Up => vec![self.ffn, self.hidden],
                LayerPart::Down => vec![self.hidden, self.ffn],
                LayerPart::GateBias | LayerPart::UpBias => vec![self.ffn],
            },
        }
    }

    pub(crate) fn has(&self, part: LayerPart) -> bool {
        match part {
            LayerPart::QBias | LayerPart::KBias | LayerPart::VBias => self.qkv_bias,
            LayerPart::OBias => self.o_bias,
            LayerPart::QNorm | LayerPart::KNorm => self.qk_norm,
            LayerPart::GateBias | LayerPart::UpBias | LayerPart::DownBias => self.mlp_bias,
            _ => true,
        }
    }
}

const LAYER_PARTS: [LayerPart; 18] = [
    LayerPart::AttentionNorm,
    LayerPart::Q,
    LayerPart::K,
    LayerPart::V,
    LayerPart::QBias,
    LayerPart::KBias,
    LayerPart::VBias,
    LayerPart::QNorm,
    LayerPart::KNorm,
    LayerPart::O,
    LayerPart::OBias,
    LayerPart::FfnNorm,
    LayerPart::Gate,
    LayerPart::Up,
    LayerPart::GateBias,
    LayerPart::UpBias,
    LayerPart::Down,
    LayerPart::DownBias,
];
