//! The default size of an engine: threads and KV pages, from the machine and the model.

use baton_core::PAGE_TOKENS;
use baton_cpu::kv_layout;
use baton_model::DecoderSpec;

use crate::byte_size::ByteSize;
use crate::cpu_list::CpuList;
use crate::failure::Failure;
use crate::options::{DtypeOption, EngineOptions, FabricMode, KvDtypeOption, ProductsOption, WeightsOption};

/// The number of full contexts that the KV pool holds, if there is enough memory.
const CONTEXTS: usize = 64;
/// Share of the memory that the KV pools of all engines may take.
const MEMORY_SHARE: u64 = 4;
/// The fewest pages with which an engine is useful.
const MIN_PAGES: usize = 16;

/// The size of one engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineSize {
    pub(crate) prefix_cache: bool,
    pub(crate) threads: usize,
    /// The cores of its threads, one for each; `None` leaves the choice to the system.
    pub(crate) cpus: Option<CpuList>,
    pub(crate) tp: usize,
    pub(crate) dtype: DtypeOption,
    pub(crate) kv_dtype: KvDtypeOption,
    pub(crate) weights: WeightsOption,
    pub(crate) products: ProductsOption,
    pub(crate) kv_pages: usize,
    pub(crate) step_tokens: usize,
    pub(crate) fabric: FabricMode,
    pub(crate) max_slots: usize,
    pub(crate) max_waiting: usize,
}

/// The machine that all engines share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory: Option<ByteSize>,
}

impl EngineSize {
    pub(crate) fn decide(
        options: &EngineOptions,
        model: &DecoderSpec,
        machine: Machine,
        engines: usize,
    ) -> Result<Self, Failure> {
        let (dtype, kv_dtype) = (options.dtype.unwrap_or_default(), options.kv_dtype.unwrap_or_default());
        let tp = options.tp.unwrap_or(1);
        let page_bytes = page_bytes(model, dtype, kv_dtype, tp)?;
        let kv_pages = match (options.kv_pages, options.kv_memory) {
            (Some(pages), _) => pages,
            (None, Some(ByteSize(bytes))) => (bytes / page_bytes) as usize,
            (None, None) => default_pages(model, page_bytes, machine, engines),
        };
        let cores = options.cpus.as_ref().map_or(machine.cores, CpuList::len);
        Ok(Self {
            prefix_cache: options.enable_prefix_cache.unwrap_or(true),
            threads: options.threads.unwrap_or((cores / engines.max(1)).max(1)),
            cpus: options.cpus.clone(),
            tp,
            dtype,
            kv_dtype,
            weights: options.weights.unwrap_or_default(),
            products: options.products.unwrap_or_default(),
            kv_pages,
            step_tokens: options.step_tokens.unwrap_or(512),
            fabric: options.fabric.unwrap_or_default(),
            max_slots: options.max_slots.unwrap_or(256),
            max_waiting: options.max_waiting.unwrap_or(1024),
        })
    }

    /// Gives engine `which` of several on this machine cores of its own, where there are enough for all.
    pub(crate) fn with_own_cores(self, which: usize, engines: usize, all: Option<&CpuList>) -> Self {
        let own = self.cpus.as_ref().or(all).and_then(|cpus| cpus.share(which, engines, self.threads));
        Self { cpus: own.or(self.cpus), ..self }
    }

    /// The size of a prefill engine. Its weights are plain: many rows share each read of the weights, so smaller ones gain little, and
    /// lose with AMX.
    pub(crate) fn for_prompts(self) -> Self {
        let weights = if self.weights == WeightsOption::Auto { WeightsOption::Plain } else { self.weights };
        Self { weights, ..self }
    }

    /// The longest sequence such an engine can hold.
    pub(crate) fn context_tokens(&self, model: &DecoderSpec) -> usize {
        model.max_context.min(self.kv_pages.saturating_mul(PAGE_TOKENS))
    }

    /// The size as options of `baton engine`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--enable-prefix-cache={}", self.prefix_cache),
            format!("--threads={}", self.threads),
            format!("--tp={}", self.tp),
            format!("--dtype={}", self.dtype.name()),
            format!("--kv-dtype={}", self.kv_dtype.name()),
            format!("--weights={}", self.weights.name()),
            format!("--products={}", self.products.name()),
            format!("--kv-pages={}", self.kv_pages),
            format!("--step-tokens={}", self.step_tokens),
            format!("--fabric={}", self.fabric.name()),
            format!("--max-slots={}", self.max_slots),
            format!("--max-waiting={}", self.max_waiting),
        ];
        flags.extend(self.cpus.as_ref().map(|cpus| format!("--cpus={cpus}")));
        flags
    }
}

fn default_pages(model: &DecoderSpec, page_bytes: u64, machine: Machine, engines: usize) -> usize {
    let wanted = CONTEXTS * model.max_context.div_ceil(PAGE_TOKENS);
    let affordable = machine
        .memory
        .map_or(usize::MAX, |ByteSize(bytes)| (bytes / MEMORY_SHARE / engines.max(1) as u64 / page_bytes) as usize);
    wanted.min(affordable).max(MIN_PAGES)
}

/// Bytes of K and V of one page in all layers. Each shard has at least one KV head, which may be the same as another shard's.
fn page_bytes(model: &DecoderSpec, dtype: DtypeOption, kv: KvDtypeOption, tp: usize) -> Result<u64, Failure> {
    let mut layout = kv_layout(model, dtype.storage(), kv.storage()).ok_or_else(|| {
        Failure::user(format!("--kv-dtype {} does not go with weights stored as f32: their KV is f32, too", kv.name()))
            .hint("leave it out, or use --dtype bf16")
    })?;
    layout.kv_heads = layout.kv_heads.max(tp as u32);
    Ok(layout.page_bytes().max(1) as u64)
}

#[cfg(test)]
mod tests {
    use baton_model::{Dtype, RopeScaling, RopeSpec};

    use super::*;

    /// 2 × 4 layers × 2 heads × 64 × 32 tokens × 2 bytes = 64 KiB per page.
    fn model() -> DecoderSpec {
        DecoderSpec {
            hidden: 256,
            layers: 4,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            ffn: 512,
            vocab: 1000,
            max_context: 2000,
            norm_eps: 1e-5,
            rope: RopeSpec { theta: 10_000.0, scaling: RopeScaling::None },
            tied_head: true,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            qk_norm: false,
            dtype: Dtype::Bf16,
        }
    }

    fn decide(options: EngineOptions, memory_mib: u64, engines: usize) -> EngineSize {
        let machine = Machine { cores: 8, memory: Some(ByteSize(memory_mib << 20)) };
        EngineSize::decide(&options, &model(), machine, engines).unwrap()
    }

    #[test]
    fn cores_are_shared_out_and_every_engine_gets_one() {
        for (engines, threads) in [(1, 8), (3, 2), (8, 1), (9, 1)] {
            assert_eq!(decide(EngineOptions::default(), 1024, engines).threads, threads, "{engines} engines");
        }
    }

    #[test]
    fn engines_have_cores_of_their_own_where_there_are_enough() {
        let list = |text: &str| text.parse::<CpuList>().ok();
        for (threads, cpus, all, expected) in [
            (None, None, "0-7", ["0,1,2,3", "4,5,6,7"]),
            (Some(3), None, "0-7", ["0,1,2", "3,4,5"]),
            (Some(5), None, "0-7", ["", ""]),
            (None, Some("4-7"), "0-7", ["4,5", "6,7"]),
            (Some(4), Some("4-7"), "0-7", ["4,5,6,7", "4,5,6,7"]),
        ] {
            let options = EngineOptions { threads, cpus: cpus.and_then(list), ..EngineOptions::default() };
            for (which, expected) in expected.into_iter().enumerate() {
                let size = decide(options.clone(), 1024, 2).with_own_cores(which, 2, list(all).as_ref());
                assert_eq!(size.cpus, list(expected), "engine {which}: {options:?}");
            }
        }
    }

    #[test]
    fn weights_of_prefill_engines_are_plain_unless_configured_otherwise() {
        use WeightsOption::{Auto, Compact, Plain};
        for (weights, for_prompts) in [(None, Plain), (Some(Auto), Plain), (Some(Compact), Compact)] {
            let size = decide(EngineOptions { weights, ..EngineOptions::default() }, 1024, 2);
            assert_eq!(size.weights, weights.unwrap_or(Auto));
            assert_eq!(size.for_prompts().weights, for_prompts, "{weights:?}");
        }
    }

    #[test]
    fn pages_hold_64_contexts_where_memory_allows() {
        let default = EngineOptions::default;
        for (options, memory_mib, engines, pages) in [
            (default(), 1 << 20, 1, 64 * 63),
            (default(), 256, 1, 1024),
            (default(), 256, 2, 512),
            (default(), 1, 1, 16),
            (EngineOptions { dtype: Some(DtypeOption::F32), ..default() }, 256, 1, 512),
            // 34 KiB: a scale of 4 bytes for 64 values.
            (EngineOptions { kv_dtype: Some(KvDtypeOption::Int8), ..default() }, 256, 1, 65536 / 34),
            (EngineOptions { kv_memory: Some(ByteSize(1 << 20)), ..default() }, 256, 1, 16),
            (EngineOptions { tp: Some(2), ..default() }, 256, 1, 1024),
            (EngineOptions { tp: Some(4), ..default() }, 256, 1, 512),
            (EngineOptions { kv_pages: Some(7), ..default() }, 256, 1, 7),
        ] {
            assert_eq!(decide(options.clone(), memory_mib, engines).kv_pages, pages, "{options:?}");
        }
    }
}
