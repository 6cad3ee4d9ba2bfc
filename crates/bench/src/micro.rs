//! `baton bench micro`: parts of Baton by themselves. A shared machine changes its speed from second to second, so everything is
//! measured once per round, beside what it is compared with, and rounds follow each other.

mod handoff;
mod kernels;
mod router;
mod section;

use std::io::{IsTerminal, Write, stderr};
use std::path::Path;

use serde::Serialize;
use tokio::task::block_in_place;

use self::handoff::HandOffBench;
use self::kernels::Kernels;
use self::router::RouterCost;
use self::section::Section;
use crate::error::BenchError;
use crate::options::{MicroOptions, MicroPart};

pub(crate) async fn micro(options: &MicroOptions) -> Result<(), BenchError> {
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let cores = baton_cpu::cores();
    let threads = options.threads.map_or(cores, |threads| threads as usize);
    let progress = ProgressLine::default();
    progress.show("getting ready");
    // Opened in the order in which they are measured: what is big first.
    let mut kernels = if wanted(MicroPart::Kernels) { Some(block_in_place(|| Kernels::new(threads))?) } else { None };
    let mut handoff = if wanted(MicroPart::Handoff) { Some(block_in_place(HandOffBench::new)?) } else { None };
    let mut router = if wanted(MicroPart::Router) { Some(RouterCost::start().await?) } else { None };
    for round in 0..options.rounds {
        let now = |part| progress.show(&format!("round {} of {}: {part}", round + 1, options.rounds));
        if let Some(kernels) = &mut kernels {
            now("kernels");
            block_in_place(|| kernels.round())?;
        }
        if let Some(handoff) = &mut handoff {
            now("hand-off");
            block_in_place(|| handoff.round())?;
        }
        if let Some(router) = &mut router {
            now("router");
            router.round(round).await?;
        }
    }
    progress.clear();
    let mut sections: Vec<Section> = Vec::new();
    sections.extend(kernels.map(|kernels| kernels.section));
    sections.extend(handoff.map(|handoff| handoff.section));
    if let Some(router) = router {
        sections.push(router.stop().await);
    }
    println!("{}, {cores} cores; rounds: {}; median (range)", processor(), options.rounds);
    for section in &sections {
        print!("\n{}", section.text());
    }
    match &options.json {
        Some(path) => save(path, options.rounds, cores, &sections),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct MicroFile<'a> {
    format: &'static str,
    processor: String,
    cores: usize,
    rounds: u32,
    sections: &'a [Section],
}

fn save(path: &Path, rounds: u32, cores: usize, sections: &[Section]) -> Result<(), BenchError> {
    let file = MicroFile { format: "baton-bench-micro/1", processor: processor(), cores, rounds, sections };
    let json = serde_json::to_vec(&file).map_err(|error| BenchError::file(path, error))?;
    std::fs::write(path, json).map_err(|error| BenchError::file(path, error))
}

/// As /proc names it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// One line on a terminal, drawn over itself; else a line each.
struct ProgressLine {
    redraws: bool,
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self { redraws: stderr().is_terminal() }
    }
}

impl ProgressLine {
    /// A terminal that has gone away is no reason to stop measuring.
    fn show(&self, text: &str) {
        let text = if self.redraws { format!("\r\x1b[K{text} …") } else { format!("{text}\n") };
        let _ = stderr().write_all(text.as_bytes());
    }

    fn clear(&self) {
        if self.redraws {
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}
