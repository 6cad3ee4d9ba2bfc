//! Engines that fail to start, as real processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_core::Program;
use baton_launcher::{EnginePlan, Identity, LaunchError, LaunchPlan, Origin, Screen, launch};
use baton_protocol::Secret;
use baton_router::Role;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Engines that are shell scripts.
async fn launch_scripts(scripts: &[&str]) -> LaunchError {
    failed(plan("/bin/sh", scripts.iter().enumerate().map(|(index, script)| spawned(index, script)).collect())).await
}

fn spawned(index: usize, script: &str) -> EnginePlan {
    EnginePlan {
        name: format!("decode-{index}"),
        role: Role::Decode,
        origin: Origin::Spawned(vec!["-c".into(), script.into()]),
    }
}

fn plan(program: &str, engines: Vec<EnginePlan>) -> LaunchPlan {
    LaunchPlan {
        program: Program { path: PathBuf::from(program), arguments: Vec::new() },
        engines,
        secret: Secret::new("s"),
        silence: PATIENCE,
        patience: Duration::from_secs(1),
        hang_timeout: Duration::from_secs(3),
        may_be_missing: false,
    }
}

async fn failed(plan: LaunchPlan) -> LaunchError {
    let fleet = Arc::new(plan.fleet());
    launch(plan, Identity::of_model("m"), fleet, Screen::stderr()).await.err().unwrap()
}

#[tokio::test]
async fn a_death_names_the_engine_its_exit_and_its_last_words() {
    let error = launch_scripts(&["echo loading >&2; echo 'no such tensor' >&2; exit 3"]).await;
    assert_eq!(
        error.to_string(),
        "engine decode-0 died while starting (exit status: 3); the end of its log:\n  | loading\n  | no such tensor"
    );
    assert!(!error.is_users_fault());
    assert!(launch_scripts(&["exit 2"]).await.is_users_fault());
    assert!(launch_scripts(&["kill -9 $$"]).await.to_string().contains("signal: 9"));
}

#[tokio::test]
async fn silence_while_loading_is_a_failure_but_progress_is_not_silence() {
    let script = r#"for i in 1 2 3 4 5; do sleep 0.6; echo '{"progress":0.1,"phase":"loading"}'; done; sleep 600"#;
    for _ in 0..10 {
        let launched = Instant::now();
        let silence = Duration::from_secs(1);
        let error = failed(LaunchPlan { silence, ..plan("/bin/sh", vec![spawned(0, script)]) }).await;
        assert!(error.to_string().starts_with("engine decode-0 printed nothing for 1 s while starting"), "{error}");
        // On a busy machine the first second may pass without progress; then another try counts.
        if launched.elapsed() > Duration::from_millis(3800) {
            return;
        }
    }
    panic!("progress did not count");
}

#[tokio::test]
async fn an_engine_that_does_not_listen_at_its_announced_address_is_a_failure() {
    let error = launch_scripts(&[r#"echo '{"listening":"127.0.0.1:1"}'; sleep 600"#]).await;
    assert!(error.to_string().starts_with("no session with engine decode-0: connection failed"), "{error}");
}

#[tokio::test]
async fn one_failure_ends_the_others() {
    let mark = std::env::temp_dir().join(format!("baton-launcher-{}", std::process::id()));
    let waiting = format!("echo $$ > {}; sleep 600", mark.display());
    let failing = format!("while [ ! -s {} ]; do sleep 0.02; done; exit 1", mark.display());
    let error = launch_scripts(&[&waiting, &failing]).await;
    assert!(error.to_string().starts_with("engine decode-1 died"), "{error}");
    let pid = std::fs::read_to_string(&mark).unwrap();
    std::fs::remove_file(&mark).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while is_running(pid.trim()) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let engine = EnginePlan { name: "decode-0".into(), role: Role::Decode, origin: Origin::Spawned(vec![]) };
    let error = failed(plan("/nonexistent/baton", vec![engine])).await;
    assert_eq!(error.to_string(), "cannot start engine decode-0: No such file or directory (os error 2)");
}

#[tokio::test]
async fn an_engine_elsewhere_is_looked_for_and_then_named() {
    // The listener is dropped at once, so nothing listens there.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = unused.to_string().parse().unwrap();
    let engine = EnginePlan { name: "decode-0".into(), role: Role::Decode, origin: Origin::Attached(endpoint) };
    let begun = Instant::now();
    let error = failed(plan("/bin/sh", vec![engine])).await.to_string();
    let expected = format!("engine decode-0 at {unused} cannot be reached: connection failed: Connection refused");
    assert!(error.starts_with(&expected), "{error}");
    assert!((Duration::from_millis(500)..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// A killed child that has not been waited for yet is a zombie, and no longer runs.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
