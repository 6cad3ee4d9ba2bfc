//! How it went over time, in equal steps.

use serde::{Deserialize, Serialize};

use crate::record::Record;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) step_s: f64,
    pub(crate) output_tokens_per_s: Vec<f64>,
    /// Completed.
    pub(crate) requests_per_s: Vec<f64>,
    /// Sent and not ended, the mean over the step.
    pub(crate) in_flight: Vec<f64>,
}

/// As many as a plot has room for. A run of a second has some too.
const MOST_STEPS: f64 = 80.0;

impl Series {
    pub(crate) fn of(records: &[Record]) -> Self {
        let end_s = records.iter().map(|record| record.end_us).max().unwrap_or(0) as f64 / 1e6;
        let step_s =
            [0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0].into_iter().find(|step| end_s / step <= MOST_STEPS);
        let step_s = step_s.unwrap_or(end_s / MOST_STEPS);
        // The last step is not whole and would look like a drop.
        let steps = ((end_s / step_s) as usize).max(1);
        let mut series = Self {
            step_s,
            output_tokens_per_s: vec![0.0; steps],
            requests_per_s: vec![0.0; steps],
            in_flight: vec![0.0; steps],
        };
        for record in records {
            series.add(record);
        }
        series
    }

    fn add(&mut self, record: &Record) {
        let step_s = self.step_s;
        let step = |at_us: u64| (at_us as f64 / 1e6 / step_s) as usize;
        let per_chunk = record.tokens_per_chunk() / step_s;
        for at in &record.chunks_us {
            if let Some(tokens) = self.output_tokens_per_s.get_mut(step(*at)) {
                *tokens += per_chunk;
            }
        }
        if let Some(requests) = self.requests_per_s.get_mut(step(record.end_us)).filter(|_| record.is_complete()) {
            *requests += 1.0 / step_s;
        }
        let from_s = record.intended_us as f64 / 1e6;
        let to_s = record.end_us as f64 / 1e6;
        for at in step(record.intended_us)..=step(record.end_us) {
            let Some(in_flight) = self.in_flight.get_mut(at) else { return };
            let (begin, end) = (at as f64 * step_s, (at + 1) as f64 * step_s);
            *in_flight += (to_s.min(end) - from_s.max(begin)).max(0.0) / step_s;
        }
    }
}
