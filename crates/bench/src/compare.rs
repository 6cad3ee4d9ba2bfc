//! `baton bench compare`: servers are started one after the other, A B, B A, A B, …, each round under the same load. A shared
//! machine changes its speed from minute to minute; neighbours in time meet the same machine, so ratios are taken within a round.
//! What is started first may find a better place in memory, so each is in turn.

mod bootstrap;
mod table;

use std::path::Path;

use serde::Serialize;

use crate::client::HttpClient;
use crate::error::BenchError;
use crate::limits::raise_open_files;
use crate::options::CompareOptions;
use crate::plan::LoadPlan;
use crate::process::{self, ServerProcess};
use crate::report::table::HEADLINES;
use crate::report::{RunFile, page};
use crate::serve::Measuring;
use crate::summary::Summary;
use table::ComparisonRow;

pub(crate) async fn compare(options: &CompareOptions) -> Result<(), BenchError> {
    let plan = LoadPlan::new(&options.load)?;
    let contenders = contenders(options)?;
    raise_open_files();
    let mut rounds: Vec<Vec<RunFile>> = Vec::new();
    for round in 0..options.rounds {
        let mut runs = Vec::new();
        for at in turns(contenders.len(), round as usize) {
            let contender = &contenders[at];
            let run = contender.measure(options, &plan.round(round.into())).await?;
            eprintln!("round {} of {}, {}: {}", round + 1, options.rounds, contender.label, one_line(&run.summary));
            runs.push((at, run));
        }
        runs.sort_by_key(|(at, _)| *at);
        rounds.push(runs.into_iter().map(|(_, run)| run).collect());
    }
    let rows = table::rows(&rounds, options.load.seed);
    let labels: Vec<_> = contenders.iter().map(|contender| contender.label.as_str()).collect();
    print!("{}", table::text(&labels, &rows, rounds.len()));
    if let Some(path) = &options.json {
        save(path, &contenders, &rounds, &rows)?;
    }
    if let Some(path) = &options.html {
        page::save_with_table(path, &median_rounds(rounds), &table::html(&labels, &rows))?;
    }
    Ok(())
}

/// Who comes after whom in a round.
fn turns(servers: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..servers).map(move |turn| (turn + round) % servers)
}

/// One of the servers that are compared.
#[derive(Debug, Serialize)]
struct Contender {
    label: String,
    /// How to start it, or where it already runs.
    command: String,
}

fn contenders(options: &CompareOptions) -> Result<Vec<Contender>, BenchError> {
    let commands: Vec<_> =
        [Some(&options.a), Some(&options.b), options.c.as_ref(), options.d.as_ref()].into_iter().flatten().collect();
    if !options.labels.is_empty() && options.labels.len() != commands.len() {
        let message = format!("{} servers are compared, but --labels names {}", commands.len(), options.labels.len());
        return Err(BenchError::Usage(message));
    }
    let label = |at: usize| options.labels.get(at).cloned().unwrap_or_else(|| ["A", "B", "C", "D"][at % 4].to_owned());
    Ok(commands
        .into_iter()
        .enumerate()
        .map(|(at, command)| Contender { label: label(at), command: command.clone() })
        .collect())
}

impl Contender {
    async fn measure(&self, options: &CompareOptions, plan: &LoadPlan) -> Result<RunFile, BenchError> {
        let runs_already = self.command.starts_with("http://");
        let process = if runs_already { None } else { Some(ServerProcess::start(&self.command)?) };
        let url = match &process {
            Some(process) => options.url.replace(process::PORT, &process.port.to_string()),
            None => self.command.clone(),
        };
        let target = url.parse().map_err(BenchError::Usage)?;
        let client = plan.client(target)?;
        let run = self.against(options, plan, &client, process.as_ref());
        // An interrupted comparison stops its servers as well: they are guards.
        let run = tokio::select! {
            biased;
            run = run => run,
            Ok(()) = tokio::signal::ctrl_c() => Err(BenchError::Usage("interrupted".into())),
        };
        if let Some(process) = process {
            process.stop().await;
        }
        run
    }

    async fn against(
        &self,
        options: &CompareOptions,
        plan: &LoadPlan,
        client: &std::sync::Arc<HttpClient>,
        process: Option<&ServerProcess>,
    ) -> Result<RunFile, BenchError> {
        let server = process::ready(plan, client, process, options.start_timeout).await?;
        let measuring =
            Measuring { label: Some(self.label.clone()), plan: plan.clone(), client: client.clone(), server };
        let cpu = || process.map(|process| process.session.cpu());
        let before = cpu();
        let mut run = measuring.measure().await?;
        let used = cpu().zip(before).map(|(after, before)| after.saturating_sub(before));
        run.server_cpu_s = used.map(|used| used.as_secs_f64());
        Ok(run)
    }
}

fn one_line(summary: &Summary) -> String {
    format!(
        "TTFT p50 {:.1} ms, TPOT p50 {:.2} ms, {:.1} output tokens/s, {} failed",
        summary.ttft_ms.p50, summary.tpot_ms.p50, summary.throughput.output_tokens_per_s, summary.requests.failed
    )
}

/// The run of each server to draw: the one with the median throughput.
fn median_rounds(rounds: Vec<Vec<RunFile>>) -> Vec<RunFile> {
    let servers = rounds.first().map_or(0, Vec::len);
    let mut by_server: Vec<Vec<RunFile>> = (0..servers).map(|_| Vec::new()).collect();
    for runs in rounds {
        for (server, run) in by_server.iter_mut().zip(runs) {
            server.push(run);
        }
    }
    let speed = |run: &RunFile| run.summary.throughput.output_tokens_per_s;
    by_server
        .into_iter()
        .filter_map(|mut runs| {
            runs.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
            let middle = runs.len() / 2;
            runs.into_iter().nth(middle)
        })
        .collect()
}

#[derive(Serialize)]
struct CompareFile<'a> {
    format: &'static str,
    servers: &'a [Contender],
    comparison: &'a [ComparisonRow],
    /// Of each server in each round.
    rounds: Vec<Vec<&'a Summary>>,
}

fn save(
    path: &Path,
    servers: &[Contender],
    rounds: &[Vec<RunFile>],
    comparison: &[ComparisonRow],
) -> Result<(), BenchError> {
    let rounds = rounds.iter().map(|runs| runs.iter().map(|run| &run.summary).collect()).collect();
    let file = CompareFile { format: "baton-bench-compare/1", servers, comparison, rounds };
    let json = serde_json::to_vec(&file).map_err(|error| BenchError::file(path, error))?;
    std::fs::write(path, json).map_err(|error| BenchError::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_comes_first_in_turn() {
        let orders = |servers: usize| (0..servers + 1).map(move |round| turns(servers, round).collect::<Vec<_>>());
        assert_eq!(orders(2).collect::<Vec<_>>(), [[0, 1], [1, 0], [0, 1]]);
        assert_eq!(orders(3).collect::<Vec<_>>(), [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }
}
