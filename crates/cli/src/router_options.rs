//! Options of gateway and router, which `serve` and `router` share.

use baton_launcher::Host;
use clap::Args;
use serde::Deserialize;

use crate::admin::AdminCommand;
use crate::api_key::TypedKey;
use crate::byte_size::ByteSize;
use crate::fleet_options::EngineUrl;
use crate::secret::SecretOptions;
use crate::strategy::{RouterMode, StrategyParameters};

#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct RouterOptions {
    /// Address the OpenAI-compatible gateway listens on [default: 127.0.0.1]
    #[arg(long, visible_alias = "host", value_name = "HOST")]
    #[serde(alias = "host")]
    pub(crate) router_host: Option<Host>,

    /// Port of the gateway; 0 takes a free one [default: 8000]
    #[arg(long, visible_alias = "port", value_name = "PORT")]
    #[serde(alias = "port")]
    pub(crate) router_port: Option<u16>,

    /// Clients must send this key; BATON_API_KEY keeps it out of lists of processes [default: none is needed]
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<TypedKey>,

    /// How requests are spread over engines [default: auto; round-robin for listed engines without --prefill]
    #[arg(long, value_name = "MODE")]
    pub(crate) router_mode: Option<RouterMode>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) parameters: StrategyParameters,

    /// Memory that the bodies of open requests may take together; one body takes eight times its size at most [default: 512M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) body_memory: Option<ByteSize>,

    /// How long to look for engines that run already [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) connect_timeout: Option<u64>,

    /// How long an engine may show no sign of life before its requests go on elsewhere; after twice that it is restarted [default: 3]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) hang_timeout: Option<u64>,

    /// After Ctrl-C or SIGTERM, how long open requests may take to finish [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain_timeout: Option<u64>,
}

/// `baton router`: one that serves, or a change to one that does.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RouterCommand {
    #[command(subcommand)]
    pub(crate) admin: Option<AdminCommand>,

    #[command(flatten)]
    pub(crate) args: RouterArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RouterArgs {
    /// Where tokenizer and chat template come from: a bundled model, a GGUF file or a directory [default: the bundled one that engines serve]
    pub(crate) model: Option<String>,

    /// An engine that runs already, and its role: prefill, decode or mixed [default role: mixed]; once for each
    #[arg(long = "engine", value_name = "URL=ROLE", required = true)]
    pub(crate) engines: Vec<EngineUrl>,

    #[command(flatten)]
    pub(crate) router: RouterOptions,

    #[command(flatten)]
    pub(crate) secret: SecretOptions,
}

impl RouterOptions {
    /// Takes options that are not set here from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            router_host: self.router_host.or(other.router_host),
            router_port: self.router_port.or(other.router_port),
            api_key: self.api_key.or(other.api_key),
            router_mode: self.router_mode.or(other.router_mode),
            parameters: self.parameters.or(other.parameters),
            body_memory: self.body_memory.or(other.body_memory),
            connect_timeout: self.connect_timeout.or(other.connect_timeout),
            hang_timeout: self.hang_timeout.or(other.hang_timeout),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
        }
    }
}
