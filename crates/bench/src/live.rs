//! The run as it happens: three lines of a terminal, drawn over themselves. Without a terminal, a line every ten seconds.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::exchange::RunProgress;
use crate::record::Record;
use crate::run::LoadRun;
use crate::schedule::StopRule;
use crate::summary::Stats;
use crate::units::{ms, rate};

const BAR_CELLS: usize = 24;
const SPARK_CELLS: usize = 24;
/// Latencies are of the requests that ended within this.
const RECENT: Duration = Duration::from_secs(5);

pub(crate) struct Live {
    redraws: bool,
    lines_drawn: usize,
    /// Requests that will be sent, where that is known.
    total: Option<u64>,
    drawn: Instant,
    chunks: u64,
    /// Chunks per second in each interval.
    speeds: VecDeque<f64>,
}

impl Live {
    pub(crate) const EVERY: Duration = Duration::from_millis(250);
    const PLAIN_EVERY: Duration = Duration::from_secs(10);

    pub(crate) fn new(run: &LoadRun) -> Self {
        let total = match run.load.stop {
            StopRule::After(_) => None,
            StopRule::Requests(requests) => Some(requests),
            StopRule::AtTheEnd => Some(run.load.workload.chats().count() as u64),
        };
        let redraws = stderr().is_terminal();
        Self { redraws, lines_drawn: 0, total, drawn: Instant::now(), chunks: 0, speeds: VecDeque::new() }
    }

    pub(crate) fn draw(&mut self, run: &LoadRun) {
        let (now, every) = (Instant::now(), if self.redraws { Self::EVERY } else { Self::PLAIN_EVERY });
        let since = now - self.drawn;
        // Ticks are not exact.
        if since < every.mul_f64(0.9) {
            return;
        }
        self.drawn = now;
        let chunks = run.progress().chunks.load(Ordering::Relaxed);
        self.speeds.push_back((chunks - self.chunks) as f64 / since.as_secs_f64());
        self.chunks = chunks;
        if self.speeds.len() > SPARK_CELLS {
            self.speeds.pop_front();
        }
        let text = self.text(run);
        self.clear();
        let shown = if self.redraws { text.as_str() } else { text.lines().next().unwrap_or_default() };
        self.lines_drawn = if self.redraws { text.lines().count() } else { 0 };
        put(&format!("{}\n", shown.trim_end()));
    }

    /// Leaves the terminal as it was.
    pub(crate) fn clear(&mut self) {
        if self.lines_drawn > 0 {
            put(&format!("\x1b[{}A\x1b[J", self.lines_drawn));
            self.lines_drawn = 0;
        }
    }

    fn text(&self, run: &LoadRun) -> String {
        let elapsed = run.started.elapsed();
        let count = |of: fn(&RunProgress) -> &std::sync::atomic::AtomicU64| of(run.progress()).load(Ordering::Relaxed);
        let (started, ended, failed) = (count(|p| &p.started), count(|p| &p.ended), count(|p| &p.failed));
        let (share, of) = match (run.load.stop, self.total) {
            (StopRule::After(time), _) => {
                (elapsed.as_secs_f64() / time.as_secs_f64().max(1e-9), format!(" of {time:.0?}"))
            }
            (_, Some(total)) => (ended as f64 / total.max(1) as f64, format!("  {ended} of {total} requests")),
            (_, None) => (0.0, String::new()),
        };
        let filled = (share.clamp(0.0, 1.0) * BAR_CELLS as f64) as usize;
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled));
        let mut text = format!(
            "{bar}  {:.0} s{of}   in flight {}   answered {}   failed {failed}\n",
            elapsed.as_secs_f64(),
            started.saturating_sub(ended),
            ended - failed
        );
        let (ttft, tpot) = run.look(|records| recent(records, run.started.elapsed()));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "TTFT p50 {} p99 {}   TPOT p50 {} p99 {}",
            ms(ttft.p50),
            ms(ttft.p99),
            ms(tpot.p50),
            ms(tpot.p99)
        );
        let last = self.speeds.back().copied().unwrap_or(0.0);
        let _ = writeln!(text, "{} {} chunks/s", spark(&self.speeds), rate(last));
        text
    }
}

fn recent(records: &[Record], now: Duration) -> (Stats, Stats) {
    let since_us = now.saturating_sub(RECENT).as_micros() as u64;
    // They are in the order in which they ended.
    let recent: Vec<_> = records.iter().rev().take_while(|record| record.end_us >= since_us).collect();
    (
        Stats::of(recent.iter().filter_map(|record| record.ttft_ms())),
        Stats::of(recent.iter().filter_map(|record| record.tpot_ms())),
    )
}

fn spark(values: &VecDeque<f64>) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(1e-9, f64::max);
    values.iter().map(|value| LEVELS[((value / most * 7.99) as usize).min(7)]).collect()
}

/// A terminal that has gone away is no reason to stop measuring.
fn put(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparks_rise() {
        assert_eq!(spark(&[0.0, 4.0, 8.0].into()), "▁▄█");
        assert_eq!(spark(&[0.0, 0.0].into()), "▁▁");
    }
}
