//! Prefill and decode on different engines (MicroServing, arXiv 2412.12488): any number of each, with the work split at a
//! point of the prompt.
//!
//! ```text
//!   prompt   0 ───── matched ───────── end ───────── L
//!            cached on D │ P computes,    │ D computes, then generates
//!                        │ hands to D     │
//! ```

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use futures_util::future::BoxFuture;

use crate::leg::Leg;
use crate::roster::Roster;
use crate::strategies::hand_over::hand_over;
use crate::strategies::kind::{Parameter, PrefillUse, StrategyKind};
use crate::strategy::{Parameters, Strategy};

pub struct Disagg {
    pd_balance_factor: f64,
}

const PD_BALANCE_FACTOR: Parameter = Parameter {
    name: "pd_balance_factor",
    about: "share of each prompt that the decode engine computes itself, from 0 up to 1",
    default: 0.0,
    at_least: 0.0,
    below: 1.0,
    is_whole: false,
};

impl Disagg {
    pub const KIND: StrategyKind = StrategyKind {
        name: "disagg",
        about: "Prompts on prefill engines, which hand their KV to decode engines",
        prefill: PrefillUse::Always,
        parameters: &[PD_BALANCE_FACTOR],
        make: |given| Arc::new(Self::new(PD_BALANCE_FACTOR.of(given))),
    };

    /// The share of each prompt, 0 to 1, that the decode engine computes itself. With 0 it computes the last token only,
    /// from which the first one is sampled.
    pub fn new(pd_balance_factor: f64) -> Self {
        Self { pd_balance_factor }
    }

    fn split_point(&self, prompt_tokens: usize) -> u32 {
        let last = prompt_tokens.saturating_sub(1);
        let end = if self.pd_balance_factor.abs() < 1e-5 {
            last
        } else {
            ((1.0 - self.pd_balance_factor) * prompt_tokens as f64).floor() as usize
        };
        end.min(last) as u32
    }
}

impl Strategy for Disagg {
    fn name(&self) -> &str {
        Self::KIND.name
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([(PD_BALANCE_FACTOR.name.to_owned(), self.pd_balance_factor)])
    }

    fn route(&self, roster: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let end = self.split_point(request.prompt.len());
        Box::pin(async move {
            let Ok(decode) = roster.decode().least_loaded() else {
                return roster.serving().least_loaded()?.start_generate(request, None).await;
            };
            let prefill = roster.prefill().pairing_with(&decode);
            if prefill.is_empty() || end == 0 || request.needs_whole_prompt() {
                return decode.start_generate(request, None).await;
            }
            hand_over(prefill, &decode, request, end).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_point_is_that_of_the_paper() {
        let cases = [
            // (factor, prompt, end)
            (0.0, 1, 0),
            (0.0, 2, 1),
            (0.0, 1500, 1499),
            (0.000_009, 100, 99),
            (-0.000_009, 100, 99),
            (0.1, 10, 9),
            (0.1, 1500, 1350),
            (0.5, 1, 0),
            (0.5, 3, 1),
            (0.5, 1500, 750),
            (0.9, 1500, 149),
            (0.9, 5, 0),
            (1.0, 1500, 0),
            // Out of range, but never out of the prompt.
            (-1.0, 10, 9),
            (2.0, 10, 0),
            (f64::NAN, 10, 0),
        ];
        for (factor, prompt, end) in cases {
            assert_eq!(Disagg::new(factor).split_point(prompt), end, "{factor} of {prompt}");
        }
    }
}
