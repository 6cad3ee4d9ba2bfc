//! Options of the backend, and what they come to for a model: how weights and KV are stored, and how they are multiplied.

use baton_fabric::{KvLayout, PageOrder};
use baton_model::{DecoderSpec, Dtype};
use half::bf16;

use crate::matmul::quant::TokenMatmuls;
use crate::memory::kv::KvElement;
use crate::simd::isa::Isa;
use crate::simd::vector::padded;

#[derive(Clone, Debug)]
pub struct CpuOptions {
    pub threads: usize,
    /// Tensor parallelism: the number of shards, each with heads, columns and, where there are enough, threads of its own.
    pub tp: usize,
    pub dtype: StorageDtype,
    pub kv_dtype: KvDtype,
    pub weights: WeightForm,
    pub products: Products,
    pub kv_pages: usize,
    pub max_step_tokens: usize,
    pub max_slots: usize,
    /// `None` takes what `BATON_ISA` names, else the machine's best.
    pub isa: Option<Isa>,
}

/// How weights are stored, and with it the element type of matmuls. The residual stream and all sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageDtype {
    /// f32 for checkpoints in f32, bf16 for others.
    Auto,
    Bf16,
    F32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    /// The element type of weights: f32 or bf16.
    Auto,
    Bf16,
    /// Quantized, with a scale for each token and head: about half the memory of bf16.
    Int8,
}

/// How weights of bf16 lie in memory. Neither changes a bit of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightForm {
    /// Compact where decoding waits for weights from memory, and few instructions expand them meanwhile.
    #[default]
    Auto,
    /// As they are multiplied: what many rows want.
    Plain,
    /// In 12 bits, without loss: what few rows want.
    Compact,
}

impl WeightForm {
    /// Fewer stay in caches, or nearly so.
    const LEAST_COMPACT_BYTES: usize = 512 << 20;

    /// Whether weights of this size are compact.
    pub(crate) fn is_compact(self, bytes: usize, isa: Isa) -> bool {
        match self {
            Self::Auto => bytes >= Self::LEAST_COMPACT_BYTES && isa.has_avx512(),
            Self::Plain => false,
            Self::Compact => true,
        }
    }
}

/// How quantized weights are multiplied. Results differ in their last bits, so the `numerics_id` differs too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// [`Self::Both`] with AMX, [`Self::Integer`] elsewhere.
    #[default]
    Auto,
    /// Rows and weights are rounded to bf16, except for logits.
    Float,
    /// Rows are quantized to integers of 14 bits in groups of 32; weights stay as they are.
    Integer,
    /// Prompt tokens are multiplied as floats, which is fastest for many rows, generated tokens as integers, which is fastest for
    /// few. Only the token's origin decides, not the step in which it is computed.
    Both,
}

impl Products {
    /// `Auto` depends on the machine, not on the configured instruction set, which must not change a result.
    pub(crate) fn of_tokens(self) -> TokenMatmuls {
        match self {
            Self::Auto if Isa::best().has_tiles() => TokenMatmuls::Both,
            Self::Float => TokenMatmuls::Float,
            Self::Auto | Self::Integer => TokenMatmuls::Integer,
            Self::Both => TokenMatmuls::Both,
        }
    }
}

/// The element types of weights and KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    F32,
    Bf16,
    Bf16WithInt8Kv,
}

impl Storage {
    /// `None` where the two cannot be combined.
    pub(crate) fn decide(model: &DecoderSpec, dtype: StorageDtype, kv: KvDtype) -> Option<Self> {
        let is_f32 = match dtype {
            StorageDtype::Auto => model.dtype == Dtype::F32,
            StorageDtype::Bf16 => false,
            StorageDtype::F32 => true,
        };
        match (is_f32, kv) {
            (true, KvDtype::Auto) => Some(Self::F32),
            (true, KvDtype::Bf16 | KvDtype::Int8) => None,
            (false, KvDtype::Auto | KvDtype::Bf16) => Some(Self::Bf16),
            (false, KvDtype::Int8) => Some(Self::Bf16WithInt8Kv),
        }
    }

    fn page_order(self) -> PageOrder {
        match self {
            Self::F32 => <f32 as KvElement>::PAGE_ORDER,
            Self::Bf16 => <bf16 as KvElement>::PAGE_ORDER,
            Self::Bf16WithInt8Kv => i8::PAGE_ORDER,
        }
    }
}

/// The layout of a model's KV. `None` where weights are stored as f32 and KV is not.
pub fn kv_layout(model: &DecoderSpec, dtype: StorageDtype, kv: KvDtype) -> Option<KvLayout> {
    let order = Storage::decide(model, dtype, kv)?.page_order();
    Some(layout(order, model.layers, model.kv_heads, model.head_dim))
}

pub(crate) fn layout(order: PageOrder, layers: usize, kv_heads: usize, head_dim: usize) -> KvLayout {
    // Values are read in whole vectors; keys are padded alike, so that both halves of a block are equal.
    KvLayout { order, layers: layers as u32, kv_heads: kv_heads as u32, head_dim: padded(head_dim) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tiny::odd_spec;

    #[test]
    fn kv_is_in_f32_where_weights_are() {
        for (checkpoint, dtype, kv, expected) in [
            (Dtype::F32, StorageDtype::Auto, KvDtype::Auto, Some(Storage::F32)),
            (Dtype::F32, StorageDtype::Auto, KvDtype::Int8, None),
            (Dtype::F32, StorageDtype::Bf16, KvDtype::Int8, Some(Storage::Bf16WithInt8Kv)),
            (Dtype::Bf16, StorageDtype::F32, KvDtype::Bf16, None),
            (Dtype::Bf16, StorageDtype::Auto, KvDtype::Bf16, Some(Storage::Bf16)),
            (Dtype::Q4_1, StorageDtype::Auto, KvDtype::Auto, Some(Storage::Bf16)),
            (Dtype::Q4_1, StorageDtype::Auto, KvDtype::Int8, Some(Storage::Bf16WithInt8Kv)),
        ] {
            assert_eq!(Storage::decide(&odd_spec(checkpoint), dtype, kv), expected, "{checkpoint:?} {dtype:?} {kv:?}");
        }
    }

    #[test]
    fn many_weights_are_compact_where_it_helps() {
        for (form, mib, isa, expected) in [
            (WeightForm::Auto, 4096, Isa::Portable, false),
            (WeightForm::Compact, 1, Isa::Portable, true),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Auto, 511, Isa::Amx, false),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Auto, 512, Isa::Amx, true),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Auto, 511, Isa::Avx512, false),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Auto, 512, Isa::Avx512, true),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Auto, 4096, Isa::Avx2, false),
            #[cfg(target_arch = "x86_64")]
            (WeightForm::Plain, 4096, Isa::Amx, false),
        ] {
            assert_eq!(form.is_compact(mib << 20, isa), expected, "{form:?}, {mib} MiB, {isa}");
        }
    }

    /// Ten dimensions take the space of sixteen.
    #[test]
    fn int8_takes_half_the_room_and_a_scale() {
        let page_bytes =
            |kv| kv_layout(&odd_spec(Dtype::Bf16), StorageDtype::Auto, kv).map(|layout| layout.page_bytes());
        assert_eq!(page_bytes(KvDtype::Auto), Some(2 * 2 * 2 * 32 * 16 * 2));
        assert_eq!(page_bytes(KvDtype::Int8), Some(2 * 2 * 2 * 32 * (16 + 4)));
    }
}
