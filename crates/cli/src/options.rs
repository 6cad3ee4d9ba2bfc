//! Options as they are typed on the command line or in a file. All may be left out; defaults are decided later.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use baton_cpu::{KvDtype, Products, StorageDtype, WeightForm};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::byte_size::ByteSize;
use crate::cpu_list::CpuList;
use crate::fleet_options::FleetOptions;
use crate::router_options::RouterOptions;
use crate::secret::SecretOptions;

/// `baton serve`. The same names are the keys of baton.toml.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ServeOptions {
    /// A bundled or pulled model, a .gguf file, a directory with config.json and *.safetensors, or one .safetensors file [default: storyteller-11m]
    pub(crate) model: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) router: RouterOptions,

    /// Read options from this file [default: ./baton.toml if it exists]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) fleet: FleetOptions,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) secret: SecretOptions,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) engine: EngineOptions,
}

/// Options of one engine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Engine options")]
pub(crate) struct EngineOptions {
    /// Keep the KV of finished prompts for later ones that begin the same [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_prefix_cache: Option<bool>,

    /// Compute threads of each engine [default: cores ÷ engines]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Cores for compute threads, like 0-3,8, dealt out to the engines [default: all; each engine has its own if they suffice]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuList>,

    /// Tensor parallelism: shards that own their heads and KV, with threads of their own where there are enough [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) tp: Option<usize>,

    /// What weights are stored as [default: auto]
    #[arg(long, value_name = "TYPE")]
    pub(crate) dtype: Option<DtypeOption>,

    /// What KV is stored as [default: auto]
    #[arg(long, value_name = "TYPE")]
    pub(crate) kv_dtype: Option<KvDtypeOption>,

    /// How bf16 weights lie in memory; answers are the same [default: auto]
    #[arg(long, value_name = "FORM")]
    pub(crate) weights: Option<WeightsOption>,

    /// How quantized weights of a GGUF file are multiplied; all engines alike [default: auto]
    #[arg(long, value_name = "KIND")]
    pub(crate) products: Option<ProductsOption>,

    /// KV pages of each engine, 32 tokens each [default: for 64 full contexts, but at most a quarter of the memory]
    #[arg(long, value_name = "N", conflicts_with = "kv_memory")]
    pub(crate) kv_pages: Option<usize>,

    /// The same as an amount of memory, like 512M or 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) kv_memory: Option<ByteSize>,

    /// Tokens computed per step, prompts in chunks and decoding sequences together [default: 512]
    #[arg(long, value_name = "N")]
    pub(crate) step_tokens: Option<usize>,

    /// How KV travels between engines [default: auto]
    #[arg(long, value_name = "WAY")]
    pub(crate) fabric: Option<FabricMode>,

    /// Sequences that run at once [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) max_slots: Option<usize>,

    /// Sequences that may wait; further requests are refused for a while [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) max_waiting: Option<usize>,
}

/// `baton engine`.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArgs {
    /// A bundled or pulled model, a .gguf file, a directory with config.json and *.safetensors, or one .safetensors file
    #[arg(required_unless_present = "mock")]
    pub(crate) model: Option<String>,

    /// Compute nothing, at a speed and with faults of your choice: decode-ms=20,error-rate=0.01 (all: docs/mock.md)
    #[arg(long, value_name = "KEY=VALUE,…", num_args = 0..=1, default_missing_value = "")]
    pub(crate) mock: Option<String>,

    /// Speak another project's prefill/decode protocol over HTTP instead of Baton's own
    #[arg(long, value_name = "PROJECT", requires = "mock")]
    pub(crate) dialect: Option<DialectOption>,

    /// Which leg of a request it serves in that protocol [default: vllm either, sglang whole requests]
    #[arg(long, value_name = "ROLE", requires = "dialect")]
    pub(crate) mock_role: Option<MockRole>,

    /// Where decode engines find this prefill engine, in SGLang's protocol; 0 takes a free port
    #[arg(long, value_name = "PORT", requires = "dialect", default_value = "8998")]
    pub(crate) bootstrap_port: u16,

    /// Where routers connect; port 0 takes a free one [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["host", "port"])]
    listen: Option<SocketAddr>,

    /// The address of --listen by itself [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,

    /// The port of --listen by itself [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Where other engines reach this one [default: where it listens; the outgoing address if that is everywhere]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) secret: SecretOptions,

    #[command(flatten)]
    pub(crate) options: EngineOptions,

    /// What it is called in lists of processes
    #[arg(long, value_name = "NAME", default_value = "engine")]
    pub(crate) name: String,

    /// Set by `baton serve`: announce on standard output in JSON, leave when standard input ends.
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
}

impl EngineArgs {
    pub(crate) fn listen(&self) -> SocketAddr {
        let host = self.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.listen.unwrap_or(SocketAddr::new(host, self.port.unwrap_or(0)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectOption {
    /// vLLM with its NixlConnector: kv_transfer_params
    Vllm,
    /// SGLang: bootstrap rooms
    Sglang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MockRole {
    Prefill,
    Decode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FabricMode {
    /// Shared memory between engines of one host, tcp otherwise
    #[default]
    Auto,
    Tcp,
}

impl FabricMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcp => "tcp",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DtypeOption {
    /// f32 for checkpoints in f32, bf16 for others
    #[default]
    Auto,
    Bf16,
    F32,
}

impl DtypeOption {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }

    pub(crate) fn storage(self) -> StorageDtype {
        match self {
            Self::Auto => StorageDtype::Auto,
            Self::Bf16 => StorageDtype::Bf16,
            Self::F32 => StorageDtype::F32,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KvDtypeOption {
    /// f32 where weights are f32, bf16 elsewhere
    #[default]
    Auto,
    Bf16,
    /// About half the memory of bf16, and a little less exact
    Int8,
}

impl KvDtypeOption {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    pub(crate) fn storage(self) -> KvDtype {
        match self {
            Self::Auto => KvDtype::Auto,
            Self::Bf16 => KvDtype::Bf16,
            Self::Int8 => KvDtype::Int8,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WeightsOption {
    /// Compact from 512 MiB of weights on with AVX-512; plain on prefill engines that `baton serve` starts
    #[default]
    Auto,
    /// 16 bits each: prompts are computed a little faster
    Plain,
    /// 12 bits each, without loss: less memory, and faster decoding
    Compact,
}

impl WeightsOption {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Plain => "plain",
            Self::Compact => "compact",
        }
    }

    pub(crate) fn form(self) -> WeightForm {
        match self {
            Self::Auto => WeightForm::Auto,
            Self::Plain => WeightForm::Plain,
            Self::Compact => WeightForm::Compact,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProductsOption {
    /// Both with AMX; integer on other machines
    #[default]
    Auto,
    /// Weights and activations rounded to bf16
    Float,
    /// Weights as they are, activations as integers of 14 bits
    Integer,
    /// Float for prompts, integer for what is generated
    Both,
}

impl ProductsOption {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Both => "both",
        }
    }

    pub(crate) fn products(self) -> Products {
        match self {
            Self::Auto => Products::Auto,
            Self::Float => Products::Float,
            Self::Integer => Products::Integer,
            Self::Both => Products::Both,
        }
    }
}

impl ServeOptions {
    /// Takes options that are not set here from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            model: self.model.or(other.model),
            router: self.router.or(other.router),
            config: self.config.or(other.config),
            fleet: self.fleet.or(other.fleet),
            secret: self.secret.or(other.secret),
            engine: self.engine.or(other.engine),
        }
    }
}

impl EngineOptions {
    fn or(self, other: Self) -> Self {
        // Either option for the size of the KV pool replaces both of the other source.
        let sized = self.kv_pages.is_some() || self.kv_memory.is_some();
        Self {
            enable_prefix_cache: self.enable_prefix_cache.or(other.enable_prefix_cache),
            threads: self.threads.or(other.threads),
            cpus: self.cpus.or(other.cpus),
            tp: self.tp.or(other.tp),
            dtype: self.dtype.or(other.dtype),
            kv_dtype: self.kv_dtype.or(other.kv_dtype),
            weights: self.weights.or(other.weights),
            products: self.products.or(other.products),
            kv_pages: if sized { self.kv_pages } else { other.kv_pages },
            kv_memory: if sized { self.kv_memory } else { other.kv_memory },
            step_tokens: self.step_tokens.or(other.step_tokens),
            fabric: self.fabric.or(other.fabric),
            max_slots: self.max_slots.or(other.max_slots),
            max_waiting: self.max_waiting.or(other.max_waiting),
        }
    }
}
