//! `baton bench serve`: one run, or several in search of the goodput, and the report of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::body::{PromptForm, RequestApi};
use crate::client::HttpClient;
use crate::error::BenchError;
use crate::goodput::{Search, Slo};
use crate::limits::raise_open_files;
use crate::live::Live;
use crate::options::BenchServeOptions;
use crate::plan::LoadPlan;
use crate::probe::Server;
use crate::report::{RunFile, ServerCard, page, table};
use crate::run::{LoadRun, RunLog};
use crate::schedule::{Arrivals, StopRule};
use crate::series::Series;
use crate::summary::Summary;
use crate::units::grouped;

pub(crate) async fn serve(options: &BenchServeOptions) -> Result<(), BenchError> {
    let plan = LoadPlan::new(&options.load)?;
    raise_open_files();
    let client = plan.client(options.url.clone())?;
    let server = plan.probe(&client).await.map_err(|failure| failure.of_server(&client))?;
    let measuring = Measuring { label: options.label.clone(), plan, client, server };
    let found = if options.find_goodput { measuring.find_goodput().await? } else { measuring.measure().await? };
    print!("{}", table::text(std::slice::from_ref(&found)));
    if let Some(path) = &options.json {
        found.save(path)?;
    }
    if let Some(path) = &options.html {
        page::save(path, std::slice::from_ref(&found))?;
    }
    Ok(())
}

/// One server and what is done to it.
pub(crate) struct Measuring {
    pub(crate) label: Option<String>,
    pub(crate) plan: LoadPlan,
    pub(crate) client: Arc<HttpClient>,
    pub(crate) server: Server,
}

impl Measuring {
    pub(crate) async fn measure(&self) -> Result<RunFile, BenchError> {
        let (log, _) = self.run(&self.plan, None).await?;
        self.file(&self.plan, log)
    }

    async fn find_goodput(&self) -> Result<RunFile, BenchError> {
        let slo =
            self.plan.slo().ok_or_else(|| BenchError::Usage("--find-goodput needs --slo-ttft or --slo-tpot".into()))?;
        let mut search = Search::from(self.first_rate());
        let (mut best, mut trial) = (None, 0);
        while let Some(rate) = search.next_rate() {
            let plan = self.plan.trial(trial, rate);
            trial += 1;
            let (log, interrupted) = self.run(&plan, Some(slo)).await?;
            if interrupted == Interrupted::ByUser {
                break;
            }
            let file = self.file(&plan, log)?;
            let met = file.summary.goodput.map_or(0.0, |goodput| goodput.share_met);
            let good =
                interrupted == Interrupted::No && file.summary.goodput.is_some_and(|goodput| goodput.is_enough());
            eprintln!(
                "{rate:8.2} requests/s: {} {:.1} % met the objectives",
                if good { "✓" } else { "✗" },
                met * 100.0
            );
            search.record(good);
            if good {
                best = Some(file);
            }
            self.settle().await?;
        }
        let url = self.client.target.to_string();
        let mut best =
            best.ok_or(BenchError::Server { url, message: "no rate that was tried meets the objectives".into() })?;
        best.goodput_rate = search.found();
        Ok(best)
    }

    /// Where the search begins. Any guess will do: it finds a thousand times more or less.
    fn first_rate(&self) -> f64 {
        match self.plan.arrivals {
            Arrivals::Open { rate, .. } => rate.to,
            Arrivals::Closed { .. } | Arrivals::Trace => 1.0,
        }
    }

    /// What an aborted run left in the server's queues must not count in the next.
    async fn settle(&self) -> Result<(), BenchError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.plan.probe(&self.client).await.map_err(|failure| failure.of_server(&self.client))?;
        Ok(())
    }

    /// With objectives, a run that cannot meet them any more is ended.
    async fn run(&self, plan: &LoadPlan, slo: Option<Slo>) -> Result<(RunLog, Interrupted), BenchError> {
        let load = plan.load(&self.server);
        let left_out = load.workload.left_out().map_err(BenchError::Usage)?;
        if left_out > 0 {
            eprintln!("{left_out} requests are longer than the server's context and are left out");
        }
        let run = LoadRun::new(load, plan.sender(&self.client, self.server.dialect.api));
        let mut live = Live::new(&run);
        let mut look = tokio::time::interval(Live::EVERY);
        let mut interrupted = Interrupted::No;
        let (mut work, mut interrupt) = (std::pin::pin!(run.run()), std::pin::pin!(tokio::signal::ctrl_c()));
        let log = loop {
            tokio::select! {
                biased;
                log = &mut work => break log,
                _ = look.tick() => {
                    live.draw(&run);
                    if slo.is_some_and(|slo| is_lost(&run, slo)) {
                        interrupted = Interrupted::Hopeless;
                        run.cancel();
                    }
                }
                Ok(()) = &mut interrupt, if interrupted == Interrupted::No => {
                    interrupted = Interrupted::ByUser;
                    run.cancel();
                }
            }
        };
        live.clear();
        Ok((log?, interrupted))
    }

    fn file(&self, plan: &LoadPlan, log: RunLog) -> Result<RunFile, BenchError> {
        let summary = Summary::new(&log, plan.slo());
        if summary.requests.completed == 0 {
            let url = self.client.target.to_string();
            let message = match summary.errors.first() {
                Some(error) => format!("no request was answered; {} times {}", error.count, error.example),
                None => "no request was answered in the measured time".into(),
            };
            return Err(BenchError::Server { url, message });
        }
        let mut records = log.records;
        records.sort_by_key(|record| record.intended_us);
        Ok(RunFile {
            format: RunFile::FORMAT.into(),
            label: self.label.clone().unwrap_or_else(|| self.default_label()),
            started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            server: self.card(),
            settings: plan.describe(),
            series: Series::of(&records),
            notes: notes(plan, &self.server, &summary),
            goodput_rate: None,
            server_cpu_s: None,
            summary,
            records,
        })
    }

    fn default_label(&self) -> String {
        self.server.dialect.model.clone().unwrap_or_else(|| self.client.target.to_string())
    }

    fn card(&self) -> ServerCard {
        let dialect = &self.server.dialect;
        let route = format!("/v1{}", dialect.api.path());
        ServerCard {
            url: self.client.target.to_string(),
            model: dialect.model.clone(),
            route,
            prompts: match (&dialect.prompt, dialect.api) {
                (PromptForm::Ids(ids), _) => format!("token ids {}..{}", ids.start, ids.end),
                (PromptForm::Text, RequestApi::Completions) => "text".into(),
                (PromptForm::Text, RequestApi::Chat) => "messages".into(),
            },
            counts_tokens: self.server.counts_tokens,
            ignores_eos: dialect.ignore_eos,
        }
    }
}

/// What a reader should know before believing the numbers.
fn notes(plan: &LoadPlan, server: &Server, summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    let requests = &summary.requests;
    if requests.short > 0 {
        notes.push(format!("{} answers ended before the requested length", grouped(requests.short as f64)));
    }
    if !server.counts_tokens {
        notes.push("the server does not count tokens: a chunk is taken for a token".into());
    }
    if requests.cached_tokens > 0 && !plan.shares_prefixes() {
        let share = 100.0 * requests.cached_tokens as f64 / requests.input_tokens.max(1) as f64;
        notes.push(format!(
            "{share:.0} % of the input was in the server's prefix cache, though prompts share nothing: it has seen this --seed before"
        ));
    }
    notes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupted {
    No,
    ByUser,
    Hopeless,
}

/// More requests have missed the objectives already than may miss them in the whole run.
fn is_lost(run: &LoadRun, slo: Slo) -> bool {
    let (StopRule::After(time), Arrivals::Open { rate, .. }) = (run.load.stop, run.load.arrivals) else { return false };
    let planned = rate.mean() * time.as_secs_f64();
    let missed = run.look(|records| records.iter().filter(|record| record.measured && !slo.is_met_by(record)).count());
    // Poisson arrivals may be a few more than planned.
    missed as f64 > 1.2 * (1.0 - slo.share) * planned + 1.0
}
