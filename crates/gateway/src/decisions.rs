//! `GET /debug/route`: the newest routing decisions with their alternatives, and how close the predictions came.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use baton_router::{Decision, Expected, Forecast, Placement};
use serde::Serialize;

use crate::gateway::Gateway;

#[derive(Serialize)]
pub(crate) struct DecisionsView {
    predictions: Predictions,
    /// Newest first.
    decisions: Vec<DecisionView>,
}

/// Of the decisions that are shown.
#[derive(Serialize)]
struct Predictions {
    /// That were predicted, and have a first token.
    compared: usize,
    /// Half of them are off by less: 0.1 is 10 % of the time that it really took.
    median_ttft_error: Option<f64>,
    median_total_error: Option<f64>,
}

#[derive(Serialize)]
struct DecisionView {
    request: u64,
    attempt: u32,
    strategy: String,
    prompt_tokens: u32,
    chosen: ForecastView,
    /// Best first.
    alternatives: Vec<ForecastView>,
    observed: ObservedView,
}

#[derive(Serialize)]
struct ForecastView {
    #[serde(flatten)]
    placement: PlacementView,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<ExpectedView>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PlacementView {
    Whole { engine: Arc<str> },
    HandOff { prefill: Arc<str>, decode: Arc<str>, end: u32 },
}

#[derive(Serialize)]
struct ExpectedView {
    ttft_ms: f64,
    tpot_ms: f64,
    total_ms: f64,
    /// What other requests lose by it, all together.
    delays_others_ms: f64,
}

#[derive(Serialize)]
struct ObservedView {
    ttft_ms: Option<f64>,
    total_ms: Option<f64>,
    tokens: u32,
    failed: bool,
}

pub(crate) async fn decisions(State(gateway): State<Arc<Gateway>>) -> Json<DecisionsView> {
    let decisions = gateway.dispatcher.decisions();
    let predictions = Predictions::of(&decisions);
    let decisions = decisions.iter().rev().map(|decision| DecisionView::of(decision)).collect();
    Json(DecisionsView { predictions, decisions })
}

impl Predictions {
    fn of(decisions: &[Arc<Decision>]) -> Self {
        let errors = |of: fn(&Decision) -> Option<f64>| {
            let mut errors: Vec<f64> = decisions.iter().filter_map(|decision| of(decision)).collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let ttft = errors(Decision::ttft_error);
        let total = errors(Decision::total_error);
        let median = |errors: &[f64]| errors.get(errors.len() / 2).map(|error| rounded(*error));
        Self { compared: ttft.len(), median_ttft_error: median(&ttft), median_total_error: median(&total) }
    }
}

impl DecisionView {
    fn of(decision: &Decision) -> Self {
        let observed = decision.observed();
        let ms = |time: Duration| rounded(time.as_secs_f64() * 1e3);
        Self {
            request: decision.request.0,
            attempt: decision.attempt.0,
            strategy: decision.strategy.clone(),
            prompt_tokens: decision.prompt_tokens,
            chosen: ForecastView::of(&decision.chosen),
            alternatives: decision.alternatives.iter().map(ForecastView::of).collect(),
            observed: ObservedView {
                ttft_ms: observed.ttft.map(ms),
                total_ms: observed.total.map(ms),
                tokens: observed.tokens,
                failed: observed.failed,
            },
        }
    }
}

impl ForecastView {
    fn of(forecast: &Forecast) -> Self {
        let placement = match forecast.placement.clone() {
            Placement::Whole { engine } => PlacementView::Whole { engine },
            Placement::HandOff { prefill, decode, end } => PlacementView::HandOff { prefill, decode, end },
        };
        let expected = forecast.expected.map(|Expected { ttft, tpot, total, delays_others }| {
            let ms = |seconds: f64| rounded(seconds * 1e3);
            ExpectedView {
                ttft_ms: ms(ttft),
                tpot_ms: ms(tpot),
                total_ms: ms(total),
                delays_others_ms: ms(delays_others),
            }
        });
        Self { placement, expected }
    }
}

/// Thousandths are enough for people.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
