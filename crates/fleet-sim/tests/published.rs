//! The table that MLC published for its microserving, with the strategies of its columns: 3000 tokens in, 100 out.
#![allow(clippy::unwrap_used, reason = "tests: allow-unwrap-in-tests covers test functions only")]

use baton_fleet_sim::{Layout, Run, Summary, Workload, WorkloadKind, preset};

/// Data parallel, 1P1D, and 1P1D with balance 0.1 and 0.3.
fn columns(rate: f64) -> [Summary; 4] {
    let disagg = |balance| Run::new("disagg", &[("pd_balance_factor", balance)], Layout::split(1, 1));
    let runs = [Run::new("round-robin", &[], Layout::mixed(2)), disagg(0.0), disagg(0.1), disagg(0.3)];
    runs.map(|run| simulate(&run, rate))
}

fn simulate(run: &Run, rate: f64) -> Summary {
    let workload = Workload::made_up(WorkloadKind::Table, rate, 500, 1);
    run.simulate(preset("mlc-70b-tp4").unwrap(), &workload).unwrap().summary
}

#[test]
fn its_order_at_its_rate() {
    let [parallel, apart, balanced, _] = columns(5.6);
    let ascending = |of: fn(&Summary) -> f64, columns: [&Summary; 3], what: &str| {
        let values = columns.map(of);
        assert!(values.is_sorted(), "{what}: {values:?}");
    };
    ascending(|summary| summary.ttft_ms.mean, [&parallel, &balanced, &apart], "mean TTFT");
    ascending(|summary| summary.tpot_ms.mean, [&apart, &balanced, &parallel], "mean TPOT");
    ascending(|summary| summary.jct_ms.mean, [&balanced, &parallel, &apart], "mean JCT");
    ascending(|summary| summary.jct_ms.p99, [&balanced, &parallel, &apart], "P99 JCT");
    for (column, published) in [(parallel, 2950.0), (apart, 4200.0), (balanced, 2600.0)] {
        let off = (column.jct_ms.mean / published - 1.0).abs();
        assert!(off < 0.25, "mean JCT is {} ms, {published} were published", column.jct_ms.mean);
    }
}

/// Below the published rate no prefill engine is overloaded, so being apart costs nothing; above it both variants are, and a
/// larger part of the prompt has to stay with the decode engine.
#[test]
fn what_wins_at_other_rates() {
    let [parallel, apart, balanced, _] = columns(4.5);
    assert!(balanced.jct_ms.mean < parallel.jct_ms.mean && balanced.jct_ms.p99 < parallel.jct_ms.p99);
    assert!(balanced.jct_ms.p99 < apart.jct_ms.p99);
    let [parallel, apart, _, more_balanced] = columns(6.5);
    assert!(parallel.jct_ms.mean < apart.jct_ms.mean && parallel.jct_ms.p99 < apart.jct_ms.p99);
    assert!(more_balanced.jct_ms.mean < parallel.jct_ms.mean && more_balanced.jct_ms.p99 < parallel.jct_ms.p99);
}

/// Of data parallel, 1P1D and balance 0.1, which are the published ones. At 4.5 requests/s it and balance 0.1 are alike.
#[test]
fn auto_beats_the_tail_of_the_published_columns() {
    for rate in [5.6, 6.5] {
        let auto = simulate(&Run::new("auto", &[], Layout::split(1, 1)), rate).jct_ms.p99;
        let [parallel, apart, balanced, _] = columns(rate).map(|column| column.jct_ms.p99);
        let best = parallel.min(apart).min(balanced);
        assert!(auto < best, "{rate} requests/s: P99 JCT is {auto} ms, the best column's {best}");
    }
}
