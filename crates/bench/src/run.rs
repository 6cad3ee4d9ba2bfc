//! A run: chats are started by the schedule, played turn by turn, and recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::body::RequestDialect;
use crate::drive;
use crate::error::BenchError;
use crate::exchange::{Exchange, RequestSender, RunProgress};
use crate::quantity::Warmup;
use crate::record::{Record, RequestFailure};
use crate::schedule::{Arrivals, StopRule};
use crate::workload::{Chat, Workload};

#[derive(Clone)]
pub(crate) struct RunSpec {
    pub(crate) workload: Arc<Workload>,
    pub(crate) dialect: RequestDialect,
    pub(crate) arrivals: Arrivals,
    pub(crate) stop: StopRule,
    pub(crate) warmup: Warmup,
    /// Between an answer and the next turn of its chat.
    pub(crate) think: Duration,
}

/// What a run leaves behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunLog {
    /// In the order in which they ended.
    pub(crate) records: Vec<Record>,
    /// The first message of each kind of error.
    pub(crate) examples: BTreeMap<String, String>,
    /// Throughput counts from here …
    pub(crate) window_from_us: u64,
    /// … until here; absent: to the last answer.
    pub(crate) window_to_us: Option<u64>,
}

/// What tasks of one run have in common.
pub(crate) struct LoadRun {
    pub(crate) load: RunSpec,
    sender: RequestSender,
    pub(crate) started: Instant,
    warmup: WarmupEnd,
    /// Requests, in the order of their starts.
    requests: AtomicU64,
    log: Mutex<RunLog>,
    stop: watch::Sender<bool>,
}

#[derive(Clone, Copy)]
enum WarmupEnd {
    Time(Duration),
    Requests(u64),
}

impl LoadRun {
    pub(crate) fn new(load: RunSpec, sender: RequestSender) -> Arc<Self> {
        Arc::new(Self {
            warmup: WarmupEnd::of(&load),
            load,
            sender,
            started: Instant::now(),
            requests: AtomicU64::new(0),
            log: Mutex::default(),
            stop: watch::Sender::new(false),
        })
    }

    /// Returns when all that was sent has been answered.
    pub(crate) async fn run(self: &Arc<Self>) -> Result<RunLog, BenchError> {
        match self.load.arrivals {
            Arrivals::Closed { users } => drive::closed_loop(self, users).await,
            Arrivals::Open { .. } | Arrivals::Trace => drive::open_loop(self).await?,
        }
        let mut log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        log.window_from_us = match self.warmup {
            WarmupEnd::Time(time) => time.as_micros() as u64,
            WarmupEnd::Requests(_) => {
                log.records.iter().filter(|record| record.measured).map(|record| record.intended_us).min().unwrap_or(0)
            }
        };
        log.window_to_us = match self.load.stop {
            StopRule::After(time) => Some((time.as_micros() as u64).min(self.micros(Instant::now()))),
            StopRule::Requests(_) | StopRule::AtTheEnd => None,
        };
        Ok(log)
    }

    /// Nothing more is sent, and what is under way is dropped without a record.
    pub(crate) fn cancel(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.stop.borrow()
    }

    pub(crate) async fn cancelled(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as this.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    pub(crate) fn progress(&self) -> &Arc<RunProgress> {
        &self.sender.progress
    }

    /// Looks at what has been recorded so far.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[Record]) -> T) -> T {
        look(&self.log.lock().unwrap_or_else(PoisonError::into_inner).records)
    }

    /// All turns of a chat, one after the other; a turn that fails is the last.
    pub(crate) async fn play(&self, number: u64, chat: &Chat, first_body: Bytes, first_intended: Instant) {
        let (mut intended, mut body) = (first_intended, first_body);
        for turn in 0..chat.turns.len() {
            let sequence = self.requests.fetch_add(1, Ordering::Relaxed);
            let (exchange, result) = tokio::select! {
                biased;
                () = self.cancelled() => return,
                answered = self.sender.send(std::mem::take(&mut body)) => answered,
            };
            let end = exchange.end.unwrap_or_else(Instant::now);
            let ok = result.is_ok();
            let mut record = self.record(chat, turn, intended, end, &exchange);
            record.chat = number;
            record.measured = match self.warmup {
                WarmupEnd::Time(time) => intended - self.started >= time,
                WarmupEnd::Requests(requests) => sequence >= requests,
            };
            self.file(record, result);
            if !ok || turn + 1 == chat.turns.len() {
                return;
            }
            body = self.load.dialect.body(chat, turn + 1);
            intended = end + self.load.think;
            if self.is_over(intended) {
                return;
            }
            tokio::select! {
                biased;
                () = self.cancelled() => return,
                () = sleep_until(intended) => {}
            }
        }
    }

    /// After the time in which requests are started.
    pub(crate) fn is_over(&self, intended: Instant) -> bool {
        matches!(self.load.stop, StopRule::After(time) if intended - self.started >= time) || self.is_cancelled()
    }

    fn record(&self, chat: &Chat, turn: usize, intended: Instant, end: Instant, exchange: &Exchange) -> Record {
        let chunks_us: Vec<_> = exchange.chunks.iter().map(|at| self.micros(*at)).collect();
        let counted = exchange.usage;
        Record {
            measured: true,
            chat: 0,
            turn: turn as u32,
            intended_us: self.micros(intended),
            sent_us: exchange.sent.map(|at| self.micros(at)),
            first_token_us: chunks_us.first().copied(),
            last_token_us: chunks_us.last().copied(),
            end_us: self.micros(end),
            input_tokens: counted
                .map_or_else(|| chat.input_tokens().nth(turn).unwrap_or(0), |usage| usage.prompt_tokens),
            cached_tokens: counted.map_or(0, |usage| usage.cached_tokens()),
            output_tokens: counted.map_or(chunks_us.len() as u64, |usage| usage.completion_tokens),
            requested_output_tokens: chat.turns[turn].output_tokens.into(),
            timings: exchange.timings,
            error: None,
            chunks_us,
        }
    }

    fn file(&self, mut record: Record, result: Result<(), RequestFailure>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(failure) = result {
            log.examples.entry(failure.kind()).or_insert_with(|| failure.to_string());
            record.error = Some(failure.kind());
        }
        log.records.push(record);
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_micros() as u64
    }
}

impl WarmupEnd {
    fn of(load: &RunSpec) -> Self {
        match (load.warmup, load.stop) {
            (Warmup::Time(time), _) => Self::Time(time),
            (Warmup::Requests(requests), _) => Self::Requests(requests),
            (Warmup::Share(share), StopRule::After(time)) => Self::Time(time.mul_f64(share)),
            (Warmup::Share(share), StopRule::Requests(requests)) => Self::Requests((requests as f64 * share) as u64),
            (Warmup::Share(share), StopRule::AtTheEnd) => {
                let last = load.workload.chats().filter_map(|chat| chat.at).last();
                Self::Time(last.unwrap_or_default().mul_f64(share))
            }
        }
    }
}
