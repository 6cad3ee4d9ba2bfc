//! The command line.

use baton_bench::{BenchCommand, ChatOptions};
use baton_fleet_sim::SimulateOptions;
use clap::{Parser, Subcommand};

use crate::options::{EngineArgs, ServeOptions};
use crate::pull::PullArgs;
use crate::router_options::RouterCommand;

/// Baton serves large language models: one command, an OpenAI-compatible API, exact answers.
#[derive(Parser, Debug)]
#[command(name = "baton", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  baton serve                            the bundled model on http://127.0.0.1:8000
  baton serve path/to/model --decode 2   your own model, one engine for prompts and two that decode
  baton pull smollm2-135m                fetch a model that chats; then baton serve smollm2-135m
  baton chat                             talk to it
  baton bench serve --users 8            measure it
  baton simulate                         compare strategies without the hardware
  baton doctor                           what this machine can do

BATON_LOG=debug makes any command say more.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a model: engines as child processes, router and gateway
    #[command(after_help = "Examples:
  baton serve                                     the bundled model on http://127.0.0.1:8000
  baton serve path/to/model --port 9000           a GGUF file or a Hugging Face directory
  baton serve --prefill 2 --decode 4              two engines compute prompts, four decode
  baton serve --prefill 0 --threads 4             one engine of four threads does both
  baton serve --kv-memory 4G                      more room for long contexts
  baton serve --endpoint-ports 9001,9002          two engines at ports of your choice, round-robin

All options can stand in baton.toml under the same names (port = 9000); the command line wins.")]
    Serve(Box<ServeOptions>),

    /// Serve through engines that run already, here or on other machines; or change a router that serves
    #[command(after_help = "Examples:
  baton engine storyteller-11m --host 10.0.0.2 --port 9001 --secret-file secret  on each engine's machine
  baton router --engine http://10.0.0.2:9001=prefill --engine http://10.0.0.3:9001=decode --secret-file secret

Several routers may share engines. One that is lost is looked for until it is back; its requests go on elsewhere.

A router that serves, also that of `baton serve`, is changed by those who know the deployment's secret:
  baton router show                                   its strategy and engines
  baton router set disagg --pd-balance-factor 0.3     another strategy from now on
  baton router role decode-0 prefill                  another role; what the engine has is finished
  baton router add 10.0.0.4:9001 --role decode        an engine joins
  baton router remove decode-0                        an engine leaves")]
    Router(Box<RouterCommand>),

    /// Run one engine that routers connect to (what `serve` starts as child processes)
    #[command(after_help = "Examples:
  baton engine storyteller-11m --host 10.0.0.5 --port 7000   an engine that routers on other hosts can reach
  baton engine --mock prefill-ms=200,decode-ms=20            one without a model, for measuring routers

Routers must know the engine's secret: use --secret-file or BATON_SECRET, or the one that is printed.")]
    Engine(Box<EngineArgs>),

    /// Bring a model onto this machine
    #[command(after_help = "Examples:
  baton pull smollm2-135m                                 a small model that chats
  baton pull hf:Qwen/Qwen3-0.6B                           a repository of the Hugging Face hub
  baton pull hf:unsloth/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf   one file of it

Models are kept where Hugging Face's own programs keep them (HF_HOME, HF_HUB_CACHE); HF_TOKEN opens gated ones,
HF_ENDPOINT names another server. Interrupted, it goes on where it stopped.")]
    Pull(PullArgs),

    /// Talk to a server, ours or any other that speaks OpenAI's API
    Chat(ChatOptions),

    /// Measure servers, ours or any other that speaks OpenAI's API
    #[command(subcommand)]
    Bench(BenchCommand),

    /// Compare routing strategies on simulated engines: the real router and engine core, costs of steps in place of kernels
    #[command(after_help = "Examples:
  baton simulate                                                  all strategies, four engines, three workloads
  baton simulate --workload mixed --rate 10,15,20 --html simulation.html
  baton simulate --trace conversation.jsonl --speed 0.5 --strategy auto,least-loaded,disagg
  baton simulate --layout 1P+3D --strategy disagg:pd_balance_factor=0.2,auto:move_roles=0
  baton simulate --preset mlc-70b-tp4 --engines 2 --workload table --rate 4.5,5.6,6.5

TTFT is the time to the first token, ITL the time between tokens, JCT that to the last token; docs/simulate.md tells more.")]
    Simulate(Box<SimulateOptions>),

    /// Say what this machine can do
    Doctor,
}
