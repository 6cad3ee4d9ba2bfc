//! What the user typed to what will be done.

use std::sync::Arc;
use std::time::Duration;

use crate::body::{RequestApi, RequestDialect};
use crate::client::HttpClient;
use crate::error::BenchError;
use crate::exchange::{RequestSender, RunProgress};
use crate::goodput::Slo;
use crate::options::{ApiChoice, LoadOptions, PromptChoice, ServerOptions};
use crate::probe::{Known, Server, probe};
use crate::quantity::Ramp;
use crate::record::RequestFailure;
use crate::run::RunSpec;
use crate::schedule::{Arrivals, StopRule};
use crate::target::ServerUrl;
use crate::workload::lengths::Lengths;
use crate::workload::trace::TraceScale;
use crate::workload::{ChatSource, Synthetic, Trace, Workload};

const DEFAULT_DURATION: Duration = Duration::from_secs(30);

/// Everything but the server, checked.
#[derive(Clone)]
pub(crate) struct LoadPlan {
    source: ChatSource,
    pub(crate) arrivals: Arrivals,
    stop: StopRule,
    options: LoadOptions,
}

impl LoadPlan {
    pub(crate) fn new(options: &LoadOptions) -> Result<Self, BenchError> {
        let source = match &options.trace {
            Some(path) => {
                ChatSource::Trace(Trace::open(path, TraceScale { speed: options.speed, length: options.length_scale })?)
            }
            None => ChatSource::Synthetic(Synthetic {
                input: options.input,
                output: options.output,
                turns: options.turns,
                shared_prefix_share: options.shared_prefix,
                prefix_groups: options.prefix_groups,
            }),
        };
        let arrivals = match (options.users, options.rate) {
            (Some(users), _) => Arrivals::Closed { users: whole_users(users)? },
            (None, Some(rate)) => Arrivals::Open { rate, spacing: options.arrivals },
            (None, None) if options.trace.is_some() => Arrivals::Trace,
            (None, None) => Arrivals::Closed { users: Ramp::constant(1.0) },
        };
        let stop = match (options.duration, options.requests) {
            (Some(duration), _) => StopRule::After(duration),
            (None, Some(requests)) => StopRule::Requests(requests),
            (None, None) if options.trace.is_some() => StopRule::AtTheEnd,
            (None, None) => StopRule::After(DEFAULT_DURATION),
        };
        match (arrivals, stop) {
            (Arrivals::Closed { users }, StopRule::Requests(_) | StopRule::AtTheEnd) if !users.is_constant() => Err(
                BenchError::Usage(format!("--users {users} adds users over the run: give its length with --duration")),
            ),
            _ => Ok(Self { source, arrivals, stop, options: options.clone() }),
        }
    }

    pub(crate) fn slo(&self) -> Option<Slo> {
        let millis = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64() * 1e3);
        let (ttft_ms, tpot_ms) = (millis(self.options.slo_ttft), millis(self.options.slo_tpot));
        let is_set = ttft_ms.is_some() || tpot_ms.is_some();
        is_set.then_some(Slo { ttft_ms, tpot_ms, share: self.options.slo_share })
    }

    pub(crate) fn client(&self, target: ServerUrl) -> Result<Arc<HttpClient>, BenchError> {
        HttpClient::new(target, self.options.server.api_key.clone(), self.options.max_connections as usize)
    }

    /// Probes what the server supports.
    pub(crate) async fn probe(&self, client: &Arc<HttpClient>) -> Result<Server, RequestFailure> {
        let known = self.options.server.known(self.options.seed);
        probe(&self.sender(client, RequestApi::Completions), &known).await
    }

    pub(crate) fn load(&self, server: &Server) -> RunSpec {
        let workload =
            Workload { source: self.source.clone(), seed: self.options.seed, context_tokens: server.context_tokens };
        RunSpec {
            workload: Arc::new(workload),
            dialect: RequestDialect { seed: self.options.seed, ..server.dialect.clone() },
            arrivals: self.arrivals,
            stop: self.stop,
            warmup: self.options.warmup,
            think: self.options.think,
        }
    }

    pub(crate) fn sender(&self, client: &Arc<HttpClient>, api: RequestApi) -> RequestSender {
        RequestSender {
            client: Arc::clone(client),
            api,
            timeout: self.options.timeout,
            progress: Arc::new(RunProgress::default()),
        }
    }

    /// With other prompts, so that rounds do not all repeat one accident.
    pub(crate) fn round(&self, number: u64) -> Self {
        let mut options = self.options.clone();
        options.seed = options.seed.wrapping_add(number);
        Self { options, ..self.clone() }
    }

    /// At another rate and with other prompts, for the search for goodput: a server has those of earlier trials in its
    /// prefix cache.
    pub(crate) fn trial(&self, number: u64, rate: f64) -> Self {
        let arrivals = Arrivals::Open { rate: Ramp::constant(rate), spacing: self.options.arrivals };
        Self { arrivals, ..self.round(number) }
    }

    /// Prompts have something in common, so a prefix cache has something to do.
    pub(crate) fn shares_prefixes(&self) -> bool {
        match &self.source {
            ChatSource::Trace(_) => true,
            ChatSource::Synthetic(synthetic) => {
                synthetic.shared_prefix_share > 0.0 || synthetic.turns != Lengths::Fixed(1)
            }
        }
    }

    /// For people, and for repeating the run.
    pub(crate) fn describe(&self) -> Vec<(String, String)> {
        let options = &self.options;
        let workload = match &self.source {
            ChatSource::Trace(trace) => format!(
                "trace of {} requests, speed ×{}, lengths ×{}",
                trace.len(),
                options.speed,
                options.length_scale
            ),
            ChatSource::Synthetic(_) => {
                let mut text = format!("{} tokens in, {} out", options.input, options.output);
                if options.shared_prefix > 0.0 {
                    let groups = if options.prefix_groups == 1 {
                        String::new()
                    } else {
                        format!(" in {} groups", options.prefix_groups)
                    };
                    text += &format!(", {:.0} % shared{groups}", options.shared_prefix * 100.0);
                }
                if options.turns != Lengths::Fixed(1) {
                    text += &format!(", {} turns, {:?} between them", options.turns, options.think);
                }
                text
            }
        };
        let arrivals = match self.arrivals {
            Arrivals::Closed { users } => {
                format!("closed loop, {users} user{}", if users.to == 1.0 { "" } else { "s" })
            }
            Arrivals::Open { rate, spacing } => {
                format!("open loop, {rate} per second, {}", format!("{spacing:?}").to_lowercase())
            }
            Arrivals::Trace => "open loop, as in the trace".into(),
        };
        let length = match self.stop {
            StopRule::After(time) => format!("{time:?}"),
            StopRule::Requests(requests) => format!("{requests} requests"),
            StopRule::AtTheEnd => "the whole trace".into(),
        };
        [("workload", workload), ("arrivals", arrivals), ("length", length), ("seed", options.seed.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }
}

/// Users are added, never taken away: they would have to leave in the middle of an answer.
fn whole_users(users: Ramp) -> Result<Ramp, BenchError> {
    let whole = |n: f64| n.fract() == 0.0 && n <= 1e6;
    if whole(users.from) && whole(users.to) && users.from <= users.to {
        return Ok(users);
    }
    Err(BenchError::Usage(format!("--users {users}: users are whole numbers up to a million, and a ramp goes up")))
}

impl ServerOptions {
    pub(crate) fn known(&self, seed: u64) -> Known {
        Known {
            model: self.model.clone(),
            api: match self.api {
                ApiChoice::Auto => None,
                ApiChoice::Completions => Some(RequestApi::Completions),
                ApiChoice::Chat => Some(RequestApi::Chat),
            },
            ids: match self.prompt {
                PromptChoice::Auto => None,
                PromptChoice::Ids => Some(true),
                PromptChoice::Text => Some(false),
            },
            vocab: self.vocab,
            extra: self.body.clone().map(|object| object.0).unwrap_or_default(),
            seed,
        }
    }
}
