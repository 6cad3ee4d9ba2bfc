//! What a router costs: the same requests to a mock engine that answers at once, by itself and with a router before it.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use baton_core::Program;
use clap::{Args, Command, FromArgMatches};

use super::section::{Column, Section};
use crate::client::HttpClient;
use crate::error::BenchError;
use crate::limits::raise_open_files;
use crate::options::LoadOptions;
use crate::plan::LoadPlan;
use crate::probe::Server;
use crate::process::{ServerProcess, ready};
use crate::run::LoadRun;
use crate::summary::Summary;

const COLUMNS: &[Column] = &[
    Column::plain("first token, ms"),
    Column::plain("requests/s"),
    Column::plain("CPU per request, µs"),
    Column::plain("of that the router"),
];
const LOAD: [&str; 4] = ["--input", "512", "--output", "64"];
/// Latency is that of a single request, throughput that of a crowd.
const ALONE: [&str; 4] = ["--users", "1", "--duration", "700ms"];
const CROWD: [&str; 4] = ["--users", "32", "--duration", "1500ms"];
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct RouterCost {
    alone: LoadPlan,
    crowd: LoadPlan,
    /// Dropped in this order: routers go before their engines.
    setups: Vec<Setup>,
    engines: Vec<ServerProcess>,
    section: Section,
}

struct Setup {
    name: &'static str,
    router: Option<ServerProcess>,
    client: Arc<HttpClient>,
    server: Server,
}

impl RouterCost {
    pub(super) async fn start() -> Result<Self, BenchError> {
        raise_open_files();
        let (alone, crowd) = (plan(&ALONE)?, plan(&CROWD)?);
        let engine = || ServerProcess::start(&command("engine --mock --listen 127.0.0.1:{port} --no-engine-auth")?);
        let engines = vec![engine()?, engine()?];
        let urls: Vec<_> = engines.iter().map(|engine| format!("http://127.0.0.1:{}", engine.port)).collect();
        let by_itself = setup("one engine, no router", &alone, None, &engines[0]).await?;
        // A router looks for its engines when it starts.
        setup("", &alone, None, &engines[1]).await?;
        let mut setups = vec![by_itself];
        for (name, fleet) in [
            ("the same engine, router", format!("--engine {}", urls[0])),
            ("prefill, decode, router", format!("--engine {}=prefill --engine {}=decode", urls[1], urls[0])),
        ] {
            let router =
                ServerProcess::start(&command(&format!("router {fleet} --router-port {{port}} --no-engine-auth"))?)?;
            setups.push(setup(name, &alone, Some(router), &engines[0]).await?);
        }
        let title =
            "router: 512 tokens in, 64 out, engines that answer at once; first token with 1 user, the rest with 32";
        Ok(Self { alone, crowd, setups, engines, section: Section::new("router", title.into(), COLUMNS) })
    }

    /// Other prompts in each, so that no prefix cache knows them.
    pub(super) async fn round(&mut self, round: u32) -> Result<(), BenchError> {
        let mut run = 2 * u64::from(round) * self.setups.len() as u64;
        for setup in &self.setups {
            let alone = setup.load(&self.alone.round(run)).await?;
            let before = self.cpu(setup);
            let crowd = setup.load(&self.crowd.round(run + 1)).await?;
            let after = self.cpu(setup);
            run += 2;
            // Those of the warm-up have cost something too.
            let per_request = |used: Duration| 1e6 * used.as_secs_f64() / crowd.all.max(1) as f64;
            let of_router = setup.router.as_ref().map(|_| per_request(after.router - before.router));
            let values = [
                Some(alone.summary.ttft_ms.p50),
                Some(crowd.summary.throughput.requests_per_s),
                Some(per_request(after.all - before.all)),
                of_router,
            ];
            self.section.add(setup.name, &values);
        }
        Ok(())
    }

    fn cpu(&self, setup: &Setup) -> Cpu {
        let router = setup.router.as_ref().map(|router| router.session.cpu()).unwrap_or_default();
        Cpu { router, all: router + self.engines.iter().map(|engine| engine.session.cpu()).sum::<Duration>() }
    }

    pub(super) async fn stop(self) -> Section {
        for setup in self.setups {
            if let Some(router) = setup.router {
                router.stop().await;
            }
        }
        for engine in self.engines {
            engine.stop().await;
        }
        self.section
    }
}

/// Used so far.
struct Cpu {
    router: Duration,
    all: Duration,
}

struct Loaded {
    summary: Summary,
    all: usize,
}

impl Setup {
    async fn load(&self, plan: &LoadPlan) -> Result<Loaded, BenchError> {
        let sender = plan.sender(&self.client, self.server.dialect.api);
        let log = LoadRun::new(plan.load(&self.server), sender).run().await?;
        let summary = Summary::new(&log, None);
        if let Some(error) = summary.errors.first() {
            let message = format!("{} requests failed: {}", error.count, error.example);
            return Err(BenchError::Server { url: self.client.target.to_string(), message });
        }
        Ok(Loaded { summary, all: log.records.len() })
    }
}

/// Waits until it answers. Without a router, requests go to the engine.
async fn setup(
    name: &'static str,
    plan: &LoadPlan,
    router: Option<ServerProcess>,
    engine: &ServerProcess,
) -> Result<Setup, BenchError> {
    let process = router.as_ref().unwrap_or(engine);
    let url = format!("http://127.0.0.1:{}", process.port);
    let client = plan.client(url.parse().map_err(BenchError::Usage)?)?;
    let server = ready(plan, &client, Some(process), PATIENCE).await?;
    Ok(Setup { name, router, client, server })
}

fn plan(arguments: &[&str]) -> Result<LoadPlan, BenchError> {
    let usage = |error: clap::Error| BenchError::Usage(error.to_string());
    let command = LoadOptions::augment_args(Command::new("load").no_binary_name(true));
    let matches = command.try_get_matches_from(LOAD.iter().chain(arguments)).map_err(usage)?;
    LoadPlan::new(&LoadOptions::from_arg_matches(&matches).map_err(usage)?)
}

/// Of this very program.
fn command(arguments: &str) -> Result<String, BenchError> {
    let program = Program::this().map_err(|error| BenchError::System(format!("cannot find baton: {error}")))?;
    let words = [program.path.as_os_str()].into_iter().chain(program.arguments.iter().map(OsString::as_os_str));
    let words: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    Ok(format!("exec {} {arguments}", words.join(" ")))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_can_be_typed() {
        assert_eq!(plan(&ALONE).unwrap().describe()[0].1, "512 tokens in, 64 out");
        assert!(plan(&CROWD).is_ok());
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted("/my dir/it's"), r"'/my dir/it'\''s'");
    }
}
