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

/// Room for KV that must be left on the decode engines, as a share of what is in use.
const KV_MARGIN: f64 = 0.3;

/// The engine to change, by its place, and its new role.
pub(super) fn change(engines: &[(Role, &EngineNow)]) -> Option<(usize, Role)> {
    let of_role = |role: Role| engines.iter().enumerate().filter(move |(_, (its, _))| *its == role);
    let (prefill, decode) = (of_role(Role::Prefill).count(), of_role(Role::Decode).count());
    if prefill == 0 || decode == 0 {
        return None;
    }
    // In engines: how many would do nothing but prompts.
    let busy: f64 = engines.iter().filter(|(role, _)| *role != Role::Mixed).map(|(_, now)| now.prefill_share).sum();
    if busy / prefill as f64 > TOO_BUSY && decode > 1 && can_spare_one(of_role(Role::Decode).map(|(_, (_, now))| *now))
    {
        let least = of_role(Role::Decode).min_by_key(|(_, (_, now))| (now.sequences, now.context_tokens));
        return least.map(|(at, _)| (at, Role::Prefill));
    }
    if prefill > 1 && busy / (prefill - 1) as f64 <= IDLE_ENOUGH {
        let least = of_role(Role::Prefill).min_by(|(_, (_, a)), (_, (_, b))| a.prefill_wait.total_cmp(&b.prefill_wait));
        return least.map(|(at, _)| (at, Role::Decode));
    }
    None
}

/// The others can take over what one of these engines does, without becoming much slower.
fn can_spare_one<'a>(decode: impl Iterator<Item = &'a EngineNow>) -> bool {
    let (mut count, mut sequences, mut context, mut free, mut slowest_now) = (0u64, 0, 0, 0, 0.0f64);
    let mut costs = None;
    for engine in decode {
        count += 1;
        sequences += engine.sequences;
        context += engine.context_tokens;
        free += engine.free_tokens;
        slowest_now = slowest_now.max(engine.step_time(0, 0));
        costs = Some(engine);
    }
    let Some(engine) = costs.filter(|_| count > 1) else { return false };
    let left = count - 1;
    let room_left = (context + free) as f64 * left as f64 / count as f64;
    let after = EngineNow { sequences: sequences / left, context_tokens: context / left, ..engine.clone() };
    room_left >= context as f64 * (1.0 + KV_MARGIN) && after.step_time(0, 0) <= slowest_now * SLOWEST_AFTER
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
            context_tokens: sequences * 1000,
            prefill_wait: prefill_share,
            prefill_share,
            cached_tokens: 0,
            free_tokens: 100_000,
        }
    }

    /// Roles with (share of prompts, sequences) → the engine that changes.
    #[test]
    fn roles_follow_the_traffic() {
        use Role::{Decode as D, Mixed as M, Prefill as P};
        type Engines<'a> = &'a [(Role, f64, u64)];
        let cases: [(&str, Engines, Option<(usize, Role)>); 9] = [
            ("balanced", &[(P, 0.7, 0), (P, 0.7, 0), (D, 0.0, 9), (D, 0.0, 8)], None),
            ("prompts", &[(P, 0.9, 0), (P, 0.9, 0), (D, 0.1, 9), (D, 0.0, 8)], Some((3, P))),
            ("prompts, but one decode engine", &[(P, 0.9, 0), (P, 0.9, 0), (D, 0.3, 9)], None),
            ("prompts, and decode engines are full", &[(P, 0.9, 0), (D, 0.0, 90), (D, 0.0, 95)], None),
            ("answers", &[(P, 0.2, 0), (P, 0.1, 0), (D, 0.0, 90), (D, 0.0, 80)], Some((1, D))),
            ("one prefill engine is idle", &[(P, 0.1, 0), (D, 0.0, 9)], None),
            ("between the bounds", &[(P, 0.3, 0), (P, 0.3, 0), (D, 0.0, 9), (D, 0.0, 9)], None),
            ("mixed ones stay", &[(M, 0.9, 3), (M, 0.9, 3)], None),
            ("nobody generates", &[(P, 0.9, 3), (P, 0.9, 3)], None),
        ];
        for (what, engines, expected) in cases {
            let states: Vec<_> =
                engines.iter().map(|&(role, share, sequences)| (role, engine(share, sequences))).collect();
            let states: Vec<_> = states.iter().map(|(role, now)| (*role, now)).collect();
            assert_eq!(change(&states), expected, "{what}");
        }
    }
}
