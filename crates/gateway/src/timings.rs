//! Where a request's time went; returned beside its usage.

use std::time::Duration;

use baton_core::PromptTimes;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Timings {
    queue_ms: f64,
    prefill_ms: f64,
    handoff_ms: f64,
    decode_ms: f64,
}

impl Timings {
    pub(crate) fn new(prompt: PromptTimes, decode: Duration) -> Self {
        // Microseconds are as fine as these are true.
        let ms = |time: Duration| time.as_micros() as f64 / 1e3;
        Self {
            queue_ms: ms(prompt.queue),
            prefill_ms: ms(prompt.prefill),
            handoff_ms: ms(prompt.handoff),
            decode_ms: ms(decode),
        }
    }

    /// Prompts of one request are served side by side: the slowest is what the client waits for.
    pub(crate) fn longest(self, other: Self) -> Self {
        if self.total_ms() >= other.total_ms() { self } else { other }
    }

    fn total_ms(self) -> f64 {
        self.queue_ms + self.prefill_ms + self.handoff_ms + self.decode_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_prompt_counts() {
        let ms = Duration::from_millis;
        let prompt = PromptTimes { queue: ms(1), prefill: ms(2), handoff: ms(5) };
        let timings = Timings::new(prompt, Duration::from_micros(1_500));
        assert_eq!(timings, Timings { queue_ms: 1.0, prefill_ms: 2.0, handoff_ms: 5.0, decode_ms: 1.5 });
        assert_eq!(timings.longest(Timings::default()), timings);
        assert_eq!(Timings::default().longest(timings), timings);
    }
}
