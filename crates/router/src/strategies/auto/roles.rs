//! When an engine should compute prompts instead of generating, or the other way round. Mixed engines stay what they are, and
//! one engine of each role is always left.

use super::engine_view::EngineNow;
use crate::engine::Role;

/// Prefill engines that are busier than this on the average need another.
const TOO_BUSY: f64 = 0.82;

/// With one prefill engine less the others would still not be busier than this.
const IDLE_ENOUGH: f64 = 0.55;

/// What steps of the decode engines that are left may take, of what they take now.
const SLOWEST_AFTER: f64 = 1.4;

/// Another decode engine is worth it when it brings their steps below this share of what they take now.
const WORTH_IT: f64 = 0.93;

/// Room for KV that decode engines must have, as a multiple of the most that was in use: less needs another, and one is
/// spared only when the others have much more.
const ROOM_NEEDED: f64 = 1.3;
const ROOM_TO_SPARE: f64 = 2.0;

/// The engine to change, by its place, and its new role.
pub(super) fn change(engines: &[(Role, &EngineNow)]) -> Option<(usize, Role)> {
    let of_role = |role: Role| engines.iter().enumerate().filter(move |(_, (its, _))| *its == role);
    let prefill = of_role(Role::Prefill).count();
    if prefill > 1 && engines.iter().all(|(role, _)| *role == Role::Prefill) {
        // The engines that generated are gone.
        return Some((0, Role::Decode));
    }
    let decode = Decoding::of(of_role(Role::Decode).map(|(_, (_, now))| *now))?;
    // In engines: how many would do nothing but prompts.
    let busy: f64 = engines.iter().filter(|(role, _)| *role != Role::Mixed).map(|(_, now)| now.prefill_share).sum();
    if prefill > 0 && busy / prefill as f64 > TOO_BUSY && decode.can_spare_one() {
        let least = of_role(Role::Decode).min_by_key(|(_, (_, now))| (now.sequences, now.context_tokens));
        return least.map(|(at, _)| (at, Role::Prefill));
    }
    let idle = prefill > 1 && busy / (prefill - 1) as f64 <= IDLE_ENOUGH;
    // Without room for their KV sequences lose it, and prompts wait: that costs more than computing prompts beside answers.
    if prefill > 1 && decode.is_short_of_room() || idle && decode.gains_by_another() {
        let least = of_role(Role::Prefill).min_by(|(_, (_, a)), (_, (_, b))| a.prefill_wait.total_cmp(&b.prefill_wait));
        return least.map(|(at, _)| (at, Role::Decode));
    }
    None
}

/// What all decode engines do together.
struct Decoding<'a> {
    count: u64,
    sequences: u64,
    context_tokens: u64,
    free_tokens: u64,
    peak_kv_tokens: u64,
    slowest_step: f64,
    one_of_them: &'a EngineNow,
}

impl<'a> Decoding<'a> {
    fn of(engines: impl Iterator<Item = &'a EngineNow> + Clone) -> Option<Self> {
        let sum = |of: fn(&EngineNow) -> u64| engines.clone().map(of).sum();
        Some(Self {
            count: sum(|_| 1),
            sequences: sum(|engine| engine.sequences),
            context_tokens: sum(|engine| engine.context_tokens),
            free_tokens: sum(|engine| engine.free_tokens),
            peak_kv_tokens: sum(|engine| engine.peak_kv_tokens),
            slowest_step: engines.clone().map(|engine| engine.step_time(0, 0)).fold(0.0, f64::max),
            one_of_them: engines.clone().next()?,
        })
    }

    /// Seconds of a step when this number of engines shares the work.
    fn step_with(&self, count: u64) -> f64 {
        let (sequences, context_tokens) = (self.sequences.div_ceil(count), self.context_tokens / count);
        EngineNow { sequences, context_tokens, ..self.one_of_them.clone() }.step_time(0, 0)
    }

    fn has_room_with(&self, count: u64, needed: f64) -> bool {
        let room = (self.context_tokens + self.free_tokens) as f64 * count as f64 / self.count as f64;
        room >= self.peak_kv_tokens as f64 * needed
    }

    /// The others take over what one does, without becoming much slower.
    fn can_spare_one(&self) -> bool {
        let left = self.count - 1;
        left > 0 && self.has_room_with(left, ROOM_TO_SPARE) && self.step_with(left) <= self.slowest_step * SLOWEST_AFTER
    }

    fn is_short_of_room(&self) -> bool {
        !self.has_room_with(self.count, ROOM_NEEDED)
    }

    fn gains_by_another(&self) -> bool {
        self.step_with(self.count + 1) < self.slowest_step * WORTH_IT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::StepCosts;

    fn engine(prefill_share: f64, sequences: u64) -> EngineNow {
        let costs = StepCosts { step_ns: 6_000_000, sequence_ns: 100_000, step_tokens: 2048, ..StepCosts::default() };
        EngineNow {
            costs,
            prefills: true,
            generates: true,
            is_last_resort: false,
            sequences,
            coming: 0,
            context_tokens: sequences * 1000,
            prefill_wait: prefill_share,
            prefill_share,
            peak_kv_tokens: sequences * 1000,
            cached_tokens: 0,
            free_tokens: 100_000,
        }
    }

    /// Roles with (share of prompts, sequences) → the engine that changes.
    #[test]
    fn roles_follow_the_traffic() {
        use Role::{Decode as D, Mixed as M, Prefill as P};
        type Case<'a> = (&'a str, &'a [(Role, f64, u64)], Option<(usize, Role)>);
        let cases: [Case; 11] = [
            ("balanced", &[(P, 0.7, 0), (P, 0.7, 0), (D, 0.0, 9), (D, 0.0, 8)], None),
            ("prompts", &[(P, 0.9, 0), (P, 0.9, 0), (D, 0.1, 9), (D, 0.0, 8)], Some((3, P))),
            ("prompts, but one decode engine", &[(P, 0.9, 0), (P, 0.9, 0), (D, 0.3, 9)], None),
            ("prompts, and decode engines are full", &[(P, 0.9, 0), (D, 0.0, 90), (D, 0.0, 95)], None),
            ("answers", &[(P, 0.2, 0), (P, 0.1, 0), (D, 0.0, 90), (D, 0.0, 80)], Some((1, D))),
            ("KV has no room", &[(P, 0.9, 0), (P, 0.9, 0), (D, 0.0, 400), (D, 0.0, 400)], Some((0, D))),
            ("nothing to do", &[(P, 0.0, 0), (P, 0.0, 0), (D, 0.0, 1), (D, 0.0, 0)], None),
            ("one prefill engine is idle", &[(P, 0.1, 0), (D, 0.0, 9)], None),
            ("between the bounds", &[(P, 0.3, 0), (P, 0.3, 0), (D, 0.0, 9), (D, 0.0, 9)], None),
            ("mixed ones stay", &[(M, 0.9, 3), (M, 0.9, 3)], None),
            ("nobody generates", &[(P, 0.9, 3), (P, 0.9, 3)], Some((0, D))),
        ];
        for (what, engines, expected) in cases {
            let states: Vec<_> =
                engines.iter().map(|&(role, share, sequences)| (role, engine(share, sequences))).collect();
            let states: Vec<_> = states.iter().map(|(role, now)| (*role, now)).collect();
            assert_eq!(change(&states), expected, "{what}");
        }
    }
}
