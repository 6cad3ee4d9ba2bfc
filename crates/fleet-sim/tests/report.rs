//! What `baton simulate` leaves: a file that can be read again, and a page that needs nothing else.
#![allow(clippy::unwrap_used, reason = "tests: allow-unwrap-in-tests covers test functions only")]

use baton_fleet_sim::{SimulateOptions, simulate};
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: SimulateOptions,
}

#[test]
fn file_and_page_hold_every_run() {
    let folder = std::env::temp_dir().join(format!("baton-fleet-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (json, html) = (folder.join("result.json"), folder.join("page.html"));
    let arguments = [
        "simulate --workload mixed --rate 4,8 --requests 20 --seed 1,2 --engines 2",
        "--strategy round-robin,disagg:pd_balance_factor=0.2,auto --json",
    ];
    let arguments = arguments.iter().flat_map(|part| part.split(' ')).map(std::ffi::OsString::from);
    let files = [json.clone().into_os_string(), "--html".into(), html.clone().into_os_string()];
    simulate(&Command::parse_from(arguments.chain(files)).options).unwrap();

    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let scenarios = file["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.iter().map(|s| s["requests_per_s"].as_f64().unwrap()).collect::<Vec<_>>(), [4.0, 8.0]);
    for scenario in scenarios {
        let runs = scenario["runs"].as_array().unwrap();
        let strategies: Vec<_> = runs.iter().map(|run| run["strategy"].as_str().unwrap()).collect();
        assert_eq!(strategies, ["round-robin", "disagg", "auto", "auto"]);
        for run in runs {
            assert_eq!(run["summary"]["requests"], 40, "both seeds together");
            let of_seed = |seed: usize| run["by_seed"][seed]["jct_ms"]["mean"].as_f64().unwrap();
            let mean = run["summary"]["jct_ms"]["mean"].as_f64().unwrap();
            assert!(mean > 0.0 && (mean - (of_seed(0) + of_seed(1)) / 2.0).abs() < 1e-6);
        }
    }
    let page = std::fs::read_to_string(&html).unwrap();
    for text in
        ["mixed by rate", "mixed: 4.00 requests/s", "mixed: 8.00 requests/s", "disagg 0.2, 1P+1D", "auto, 1P+1D"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="), "needs no network");
    std::fs::remove_dir_all(folder).unwrap();
}
