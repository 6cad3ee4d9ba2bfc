//! Every strategy serves every workload, and a seed decides all of it.
#![allow(clippy::unwrap_used, reason = "tests: allow-unwrap-in-tests covers test functions only")]

use baton_fleet_sim::{Layout, Run, Workload, WorkloadKind, preset};

#[test]
fn every_strategy_serves_every_workload() {
    let preset = preset("h100-8b").unwrap();
    for kind in WorkloadKind::ALL {
        let rate = Workload::default_rate(kind, preset, 4);
        let workload = Workload::made_up(kind, rate, 60, 7);
        let wanted: u32 = workload.chats.iter().flat_map(|chat| &chat.turns).map(|turn| turn.output_tokens).sum();
        for run in Run::usual(4) {
            let outcome = run.simulate(preset, &workload).unwrap();
            assert_eq!((outcome.summary.requests, outcome.summary.failed), (60, 0), "{run}: {}", workload.name);
            let sent: u32 = outcome.records.requests.iter().map(|record| record.output_tokens).sum();
            assert_eq!(sent, wanted, "{run}: {}", workload.name);
            assert_eq!(outcome.summary.ttft_error.is_some(), run.adapts(), "{run} predicts");
        }
    }
}

#[test]
fn a_seed_decides_everything() {
    let preset = preset("h100-8b").unwrap();
    let simulate = |run: &Run, seed| {
        let workload = Workload::made_up(WorkloadKind::Mixed, 20.0, 150, seed);
        run.simulate(preset, &workload).unwrap().records
    };
    for run in [Run::new("auto", &[], Layout::split(2, 2)), Run::new("prefix-aware", &[], Layout::mixed(4))] {
        assert!(simulate(&run, 1) == simulate(&run, 1), "{run}: the same seed gives the same result");
        assert!(simulate(&run, 1) != simulate(&run, 2), "{run}: another one gives another");
    }
}

#[test]
fn kv_that_is_handed_over_takes_time() {
    let fast = preset("h100-8b").unwrap();
    let slow = baton_fleet_sim::Preset { bytes_per_s: fast.bytes_per_s / 50.0, ..fast.clone() };
    let workload = Workload::made_up(WorkloadKind::LongPrompts, 1.0, 20, 1);
    let ttft = |preset, run: &Run| run.simulate(preset, &workload).unwrap().summary.ttft_ms.mean;
    let apart = Run::new("disagg", &[], Layout::split(1, 1));
    // 5500 tokens of 128 KiB at 1 GB/s.
    assert!(ttft(&slow, &apart) > ttft(fast, &apart) + 300.0);
    let together = Run::new("least-loaded", &[], Layout::mixed(2));
    assert_eq!(ttft(&slow, &together), ttft(fast, &together));
}
