//! Requests as bars: when each was due, and where its time went.

use serde::Serialize;

use super::RunFile;
use super::axis::Axis;
use super::plot::{SIDE, axis_labels, figure, grid, legend, put, script_json, short};
use crate::record::Record;

/// In the order in which a request goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPhase {
    WaitAtClient,
    Queue,
    Prefill,
    HandOff,
    /// Until the first token, where the server does not report more; or what it does not account for.
    FirstToken,
    Decode,
    Failed,
}

impl RequestPhase {
    const ALL: [Self; 7] =
        [Self::WaitAtClient, Self::Queue, Self::Prefill, Self::HandOff, Self::FirstToken, Self::Decode, Self::Failed];

    fn name(self, has_timings: bool) -> &'static str {
        match self {
            Self::WaitAtClient => "wait at client",
            Self::Queue => "queue",
            Self::Prefill => "prefill",
            Self::HandOff => "hand-off",
            Self::FirstToken if has_timings => "other",
            Self::FirstToken => "to first token",
            Self::Decode => "decode",
            Self::Failed => "failed",
        }
    }

    fn class(self) -> String {
        format!("ph{}", self as usize)
    }
}

/// The phases of a request, one after the other from its intended time, in ms.
fn phases(record: &Record) -> Vec<(RequestPhase, f64)> {
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let sent = record.sent_us.unwrap_or(record.end_us);
    let mut phases = vec![(RequestPhase::WaitAtClient, ms(record.intended_us, sent))];
    let Some(first) = record.first_token_us.filter(|_| record.is_complete()) else {
        phases.push((RequestPhase::Failed, ms(sent, record.end_us)));
        return phases;
    };
    let mut left = ms(sent, first);
    if let Some(timings) = record.timings {
        for (phase, length) in [
            (RequestPhase::Queue, timings.queue_ms),
            (RequestPhase::Prefill, timings.prefill_ms),
            (RequestPhase::HandOff, timings.handoff_ms),
        ] {
            // Clocks of two programs never agree to the last microsecond.
            let length = length.clamp(0.0, left);
            phases.push((phase, length));
            left -= length;
        }
    }
    phases.push((RequestPhase::FirstToken, left));
    phases.push((RequestPhase::Decode, ms(first, record.end_us)));
    phases
}

#[derive(Serialize)]
struct TimelineHover {
    /// Names of the phases.
    phases: Vec<(String, &'static str)>,
    to_s: f64,
    rows: Vec<RequestBar>,
}

#[derive(Serialize)]
struct RequestBar {
    at_s: f64,
    input: u64,
    output: u64,
    /// (phase, ms)
    phases: Vec<(usize, f64)>,
}

/// A bar is at least a few pixels high.
const MOST_ROWS: usize = 120;

pub(crate) fn html(run: &RunFile, id: &str, title: &str) -> String {
    let step = run.records.len().div_ceil(MOST_ROWS).max(1);
    let shown: Vec<_> = run.records.iter().step_by(step).collect();
    let to_s = shown.iter().map(|record| record.end_us).max().unwrap_or(0) as f64 / 1e6;
    let x = Axis::exact("time since the run began", "s", to_s);
    let y = Axis::names_only(if step == 1 { "requests" } else { "a sample of the requests" });
    let height = SIDE / shown.len().max(1) as f64;
    let mut paths = vec![String::new(); RequestPhase::ALL.len()];
    let mut rows = Vec::new();
    for (row, record) in shown.iter().enumerate() {
        let top = row as f64 * height + 0.1 * height;
        let mut begin_s = record.intended_us as f64 / 1e6;
        let phases = phases(record);
        for (phase, length_ms) in &phases {
            let (left, right) = (x.at(begin_s) * SIDE, x.at(begin_s + length_ms / 1e3) * SIDE);
            begin_s += length_ms / 1e3;
            if *length_ms > 0.0 {
                let bar = format_args!("M{left:.2} {top:.2}H{right:.2}v{:.2}H{left:.2}z", 0.8 * height);
                put(&mut paths[*phase as usize], bar);
            }
        }
        rows.push(RequestBar {
            at_s: short(record.intended_us as f64 / 1e6),
            input: record.input_tokens,
            output: record.output_tokens,
            phases: phases
                .into_iter()
                .filter(|(_, ms)| *ms > 0.0)
                .map(|(phase, ms)| (phase as usize, short(ms)))
                .collect(),
        });
    }
    let has_timings = shown.iter().any(|record| record.timings.is_some());
    let used = |phase: &RequestPhase| !paths[*phase as usize].is_empty();
    let names = RequestPhase::ALL.into_iter().filter(used).map(|phase| (phase.class(), phase.name(has_timings)));
    let names = legend(names);
    let mut drawing = grid(&x, &y);
    for (phase, path) in RequestPhase::ALL.into_iter().zip(&paths).filter(|(_, path)| !path.is_empty()) {
        put(&mut drawing, format_args!("<path class=\"{}\" d=\"{path}\"/>", phase.class()));
    }
    let hover = TimelineHover {
        phases: RequestPhase::ALL.into_iter().map(|phase| (phase.class(), phase.name(has_timings))).collect(),
        to_s,
        rows,
    };
    figure(id, title, &y, &x, &drawing, &axis_labels(&x, &y), &names, &script_json(&hover))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ServerTimings;

    fn record(timings: Option<ServerTimings>, error: Option<&str>) -> Record {
        Record {
            measured: true,
            chat: 0,
            turn: 0,
            intended_us: 1_000,
            sent_us: Some(2_000),
            first_token_us: Some(12_000),
            last_token_us: Some(20_000),
            end_us: 22_000,
            input_tokens: 1,
            cached_tokens: 0,
            output_tokens: 2,
            requested_output_tokens: 2,
            timings,
            error: error.map(str::to_owned),
            chunks_us: vec![],
        }
    }

    #[test]
    fn phases_add_up() {
        let timings = ServerTimings { queue_ms: 1.0, prefill_ms: 5.0, handoff_ms: 2.0, decode_ms: 9.0 };
        for (record, expected) in [
            (
                record(None, None),
                vec![(RequestPhase::WaitAtClient, 1.0), (RequestPhase::FirstToken, 10.0), (RequestPhase::Decode, 10.0)],
            ),
            (record(None, Some("cut")), vec![(RequestPhase::WaitAtClient, 1.0), (RequestPhase::Failed, 20.0)]),
            (
                record(Some(timings), None),
                vec![
                    (RequestPhase::WaitAtClient, 1.0),
                    (RequestPhase::Queue, 1.0),
                    (RequestPhase::Prefill, 5.0),
                    (RequestPhase::HandOff, 2.0),
                    (RequestPhase::FirstToken, 2.0),
                    (RequestPhase::Decode, 10.0),
                ],
            ),
        ] {
            let found = phases(&record);
            assert_eq!(found, expected);
            assert_eq!(found.iter().map(|(_, ms)| ms).sum::<f64>(), record.e2e_ms());
        }
    }

    #[test]
    fn a_server_that_claims_too_much_is_cut() {
        let timings = ServerTimings { prefill_ms: 50.0, ..ServerTimings::default() };
        assert_eq!(phases(&record(Some(timings), None)).iter().map(|(_, ms)| ms).sum::<f64>(), 21.0);
    }
}
