//! What is chosen for one request, given what the engines are doing.

use baton_core::StepCosts;

use super::*;

const COSTS: StepCosts = StepCosts {
    steps: 1000,
    prefill_steps: 500,
    step_ns: 6_000_000,
    prefill_token_ns: 36_000,
    prefill_context_ps: 1300,
    sequence_ns: 20_000,
    context_ps: 40_000,
    step_tokens: 2048,
};

const LINK: HandOffCost = HandOffCost { fixed: 0.001, per_thousand_tokens: 0.0005 };

/// A mixed engine with nothing to do.
fn idle() -> EngineNow {
    EngineNow {
        costs: COSTS,
        prefills: true,
        generates: true,
        is_last_resort: false,
        sequences: 0,
        coming: 0,
        context_tokens: 0,
        prefill_wait: 0.0,
        prefill_share: 0.0,
        peak_kv_tokens: 0,
        cached_tokens: 0,
        free_tokens: 100_000,
    }
}

fn generating(sequences: u64) -> EngineNow {
    EngineNow { sequences, context_tokens: 1000 * sequences, ..idle() }
}

/// Computes nothing but prompts.
fn prefill() -> EngineNow {
    EngineNow { generates: false, ..idle() }
}

/// Generates, and computes what others do not compute for it.
fn decode(sequences: u64) -> EngineNow {
    EngineNow { prefills: false, ..generating(sequences) }
}

fn task(prompt_tokens: u64, answer_tokens: f64) -> Task {
    let (choices, needs_whole_prompt, lateness) = (1, false, 0.0);
    Task { prompt_tokens, tokens: prompt_tokens, choices, answer_tokens, needs_whole_prompt, lateness }
}

/// Engine, or `prefill→decode`, and the share of the prompt that is handed over.
fn chosen(engines: &[EngineNow], task: &Task, targets: Targets) -> String {
    let engines: Vec<_> = engines.iter().collect();
    let planned = plan_states(&engines, &|_, _| true, task, &LINK, &targets);
    match planned[0].prefill {
        None => planned[0].decode.to_string(),
        Some((prefill, end)) => {
            let share = f64::from(end) / task.prompt_tokens as f64;
            format!("{prefill}→{} {share:.1}", planned[0].decode)
        }
    }
}

#[test]
fn the_least_time_of_all_requests_together() {
    let long = task(4000, 100.0);
    let busy = |seconds| EngineNow { prefill_wait: seconds, prefill_share: 0.5, ..prefill() };
    let cases = [
        ("nobody is disturbed", vec![idle(), idle()], long, "0"),
        ("the idle one", vec![generating(20), idle()], long, "1"),
        ("sequences would stand still", vec![prefill(), decode(20)], long, "0→1 1.0"),
        ("a short prompt is no trouble", vec![prefill(), decode(20)], task(40, 100.0), "1"),
        ("nobody decodes, and the queue is long", vec![busy(2.0), decode(0)], long, "1"),
        ("the shorter queue", vec![busy(2.0), busy(0.1), decode(20)], long, "1→2 1.0"),
        ("fewer sequences", vec![prefill(), decode(30), decode(10)], long, "0→2 1.0"),
        ("prefill engines compute whole requests when nobody else can", vec![idle()], long, "0"),
        (
            "what is cached is not computed",
            vec![generating(4), EngineNow { cached_tokens: 3990, ..generating(4) }],
            long,
            "1",
        ),
        ("nor is it sent", vec![prefill(), EngineNow { cached_tokens: 3990, ..decode(8) }, decode(7)], long, "1"),
        (
            "where the prompt is cached",
            vec![prefill(), EngineNow { cached_tokens: 3000, prefill_wait: 0.05, ..prefill() }, decode(20)],
            long,
            "1→2 1.0",
        ),
        (
            "where KV has room",
            vec![prefill(), EngineNow { free_tokens: 1000, ..decode(9) }, decode(10)],
            long,
            "0→2 1.0",
        ),
        (
            "not again where it failed",
            vec![prefill(), decode(50), EngineNow { is_last_resort: true, ..decode(0) }],
            long,
            "0→1 1.0",
        ),
        (
            "unless there is no other",
            vec![prefill(), EngineNow { is_last_resort: true, ..decode(20) }],
            long,
            "0→1 1.0",
        ),
        (
            "the prompt's own log-probabilities",
            vec![prefill(), decode(20)],
            Task { needs_whole_prompt: true, ..long },
            "1",
        ),
    ];
    for (what, engines, task, expected) in cases {
        assert_eq!(chosen(&engines, &task, Targets::default()), expected, "{what}");
    }
}

#[test]
fn engines_with_other_numerics_hand_nothing_over() {
    let engines = [prefill(), decode(20)];
    let planned = plan_states(&engines.each_ref(), &|_, _| false, &task(4000, 100.0), &LINK, &Targets::default());
    assert!(planned.iter().all(|planned| planned.prefill.is_none()) && planned.len() == 1, "{planned:?}");
}

/// A prompt is cut where the decode engine's part costs its sequences less than the queue in front of the prefill engine.
#[test]
fn a_prompt_is_split_when_its_prefill_engine_is_behind() {
    let behind = EngineNow { prefill_wait: 0.02, prefill_share: 0.9, ..prefill() };
    let split = chosen(&[behind, decode(1)], &task(8000, 20.0), Targets::default());
    let share: f64 = split.strip_prefix("0→1 ").unwrap_or_else(|| panic!("{split}")).parse().unwrap();
    assert!((0.4..1.0).contains(&share), "{split}");
}

#[test]
fn targets_decide_between_what_is_fast_and_what_is_steady() {
    // The first engine starts at once and is slow from token to token, the second the other way round.
    let engines = [generating(100), EngineNow { prefill_wait: 0.8, ..generating(1) }];
    let task = task(200, 60.0);
    let first_token = Targets { ttft_ms: 200.0, tpot_ms: 0.0 };
    let further_tokens = Targets { ttft_ms: 0.0, tpot_ms: 7.0 };
    assert_eq!(chosen(&engines, &task, first_token), "0");
    assert_eq!(chosen(&engines, &task, further_tokens), "1");
}

#[test]
fn predictions_are_sums_that_can_be_checked_by_hand() {
    let engines = [EngineNow { prefill_wait: 0.5, ..prefill() }, decode(10)];
    let planned = plan_states(&engines.each_ref(), &|_, _| true, &task(1001, 11.0), &LINK, &Targets::default());
    let by = |wanted: fn(&Planned) -> bool| planned.iter().find(|planned| wanted(planned)).unwrap().expected;
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} {b}");
    // A step beside ten sequences: 6 + 10 × 0.02 + 10,000 × 0.00004 = 6.6 ms; the prompt: 1001 × 0.036 + 501,000 × 1.3e-6 ms.
    let whole = by(|planned| planned.prefill.is_none());
    close(whole.ttft, 0.0066 + 0.036_04 + 0.000_65);
    // One sequence more with 1001 + 5 tokens.
    close(whole.tpot, 0.0066 + 0.000_02 + 0.000_04);
    close(whole.total, whole.ttft + 10.0 * whole.tpot);
    // 0.5 s wait, a step of its own, the hand-off, a step for the last token.
    let handed = by(|planned| planned.prefill.is_some_and(|(_, end)| end == 1000));
    close(handed.ttft, 0.5 + 0.006 + 0.036 + 0.000_65 + 0.0015 + 0.0066 + 0.000_037);
    assert!(handed.delays_others < whole.delays_others, "{handed:?} {whole:?}");
}
