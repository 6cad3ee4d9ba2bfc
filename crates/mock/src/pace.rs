//! How long steps take, to the clock: one that follows another begins when that one was due to end, so that what the
//! scheduler does between them costs nothing and delays do not add up.

use std::time::{Duration, Instant};

use crate::config::Speed;

/// A process that was stopped for longer does not hurry to make up for it.
const MAKE_UP: Duration = Duration::from_millis(100);

/// A slow mock works all the time that it takes, so it never looks as if it hung.
const SHOW_LIFE: Duration = Duration::from_millis(500);

/// What a step is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepWork {
    prefill: Duration,
    decodes: bool,
}

impl StepWork {
    /// Some tokens of one sequence. A single one on top of others is decoding, also when it is the prompt's last, as on an
    /// engine that was handed the rest.
    pub(crate) fn add(&mut self, speed: &Speed, first_position: usize, tokens: usize, prompt_tokens: usize) {
        if first_position > 0 && tokens == 1 {
            self.decodes = true;
        } else {
            let share = tokens as f64 / prompt_tokens.max(1) as f64;
            self.prefill += speed.prefill.mul_f64(share) + speed.prefill_per_token * tokens as u32;
        }
    }

    pub(crate) fn duration(&self, speed: &Speed) -> Duration {
        self.prefill + if self.decodes { speed.decode } else { Duration::ZERO }
    }
}

#[derive(Debug, Default)]
pub(crate) struct StepPace {
    last_end: Option<Instant>,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    begin: Instant,
    duration: Duration,
}

impl StepPace {
    /// `continues`: the engine had no pause since the last step.
    pub(crate) fn step(&mut self, now: Instant, duration: Duration, continues: bool) -> Span {
        let begin = match self.last_end {
            Some(end) if continues && now.saturating_duration_since(end) < MAKE_UP => end,
            _ => now,
        };
        self.last_end = Some(begin + duration);
        Span { begin, duration }
    }
}

impl Span {
    /// Waits for the end of part `index` of `parts` equal ones, and calls `moved` often while it does.
    pub(crate) fn wait_for_part(&self, index: u32, parts: u32, moved: impl Fn()) {
        let due = self.part(index, parts);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(SHOW_LIFE));
            if left <= SHOW_LIFE {
                return;
            }
            moved();
        }
    }

    fn part(&self, index: u32, parts: u32) -> Instant {
        self.begin + self.duration.mul_f64(f64::from(index + 1) / f64::from(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn work_by_table() {
        let speed = Speed { prefill: ms(200), prefill_per_token: ms(1), decode: ms(20), ..Speed::default() };
        // (first position, tokens, prompt) of each segment → duration
        type Case<'a> = (&'a [(usize, usize, usize)], Duration);
        let cases: [Case<'_>; 8] = [
            (&[], ms(0)),
            (&[(0, 100, 100)], ms(300)),
            (&[(0, 50, 100)], ms(150)),
            (&[(50, 50, 100)], ms(150)),
            (&[(0, 1, 1)], ms(201)),
            (&[(99, 1, 100)], ms(20)),
            (&[(100, 1, 100), (500, 1, 10)], ms(20)),
            (&[(100, 1, 100), (0, 10, 10)], ms(230)),
        ];
        for (segments, duration) in cases {
            let mut work = StepWork::default();
            segments.iter().for_each(|&(first, tokens, prompt)| work.add(&speed, first, tokens, prompt));
            assert_eq!(work.duration(&speed), duration, "{segments:?}");
        }
    }

    #[test]
    fn steps_do_not_drift_and_pauses_are_not_made_up_for() {
        let zero = Instant::now();
        let mut pace = StepPace::default();
        // (submitted at, continues) → begins at
        for (at, continues, begin) in [(5, false, 5), (27, true, 25), (45, true, 45), (70, false, 70), (290, true, 290)]
        {
            let span = pace.step(zero + ms(at), ms(20), continues);
            assert_eq!(span, Span { begin: zero + ms(begin), duration: ms(20) }, "submitted at {at}");
        }
        let span = Span { begin: zero, duration: ms(20) };
        assert_eq!([0, 1, 3].map(|part| span.part(part, 4)), [5, 10, 20].map(|at| zero + ms(at)));
    }
}
