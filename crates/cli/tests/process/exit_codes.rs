//! Every failure has one clear message and the right exit code, and leaves nothing running.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::baton::{TempDir, command, run};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn bad_values_are_one_message_and_exit_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["serve", "no/such/model"], "error: no model \"no/such/model\""),
        (
            &["serve", "--router-mode", "disagg", "--prefill", "0"],
            "error: --router-mode disagg needs prefill engines\nhint: add --prefill 1",
        ),
        (
            &["serve", "--router-mode", "round-robin", "--prefill", "1"],
            "error: prefill engines take no part in --router-mode round-robin\nhint: leave out --router-mode or the prefill engines",
        ),
        (
            &["serve", "--prefill", "0", "--pd-balance-factor", "0.5"],
            "error: auto takes no --pd-balance-factor\nhint: it belongs to disagg",
        ),
        (
            &["serve", "--router-mode", "disagg", "--pd-balance-factor", "1"],
            "error: --pd-balance-factor must be at least 0 and below 1, not 1",
        ),
        (&["serve", "--decode", "0"], "error: --decode must be at least 1, and engines at most 256 in all, not 1 + 0"),
        (&["serve", "--threads", "0"], "error: --threads must be between 1 and 1024"),
        (&["serve", "--threads", "100000"], "error: --threads must be between 1 and 1024"),
        (
            &["serve", "--tp", "4"],
            "error: tensor parallelism 4 does not fit this model: 6 query heads cannot be dealt out evenly to 4 shards\n\
             hint: --tp can be 1, 2, 6 here",
        ),
        (
            &["engine", "storyteller-11m", "--tp", "3"],
            "error: tensor parallelism 3 does not fit this model: of 2 KV heads and 3 shards one must divide the other",
        ),
        (
            &["serve", "--endpoint-num-gpus", "1,4"],
            "error: tensor parallelism 4 does not fit this model: 6 query heads cannot be dealt out evenly to 4 shards",
        ),
        (
            &["simulate", "--strategy", "autos"],
            "error: invalid value 'autos' for '--strategy <NAME>': unknown strategy \"autos\"",
        ),
        (&["simulate", "--layout", "1P+1D,4"], "error: layouts must have the same number of engines"),
        (&["simulate", "--engines", "1", "--strategy", "disagg"], "error: these strategies need at least two engines"),
        (&["simulate", "--trace", "no/such/file"], "error: no/such/file: No such file"),
        (&["serve", "--tp", "0"], "error: --tp must be between 1 and 1024"),
        (&["serve", "--max-slots", "99999999999"], "error: --max-slots must be between 1 and 65536"),
        (&["serve", "--kv-pages", "576460752303423488"], "error: --kv-pages must be between 1 and 4294967295"),
        (&["serve", "--kv-memory", "1"], "error: --kv-memory is less than one page of this model"),
        (&["serve", "--kv-memory", "lots"], "error: invalid value 'lots' for '--kv-memory <SIZE>'"),
        (
            &["serve", "--dtype", "f32", "--kv-dtype", "int8"],
            "error: --kv-dtype int8 does not go with weights stored as f32: their KV is f32, too\n\
             hint: leave it out, or use --dtype bf16",
        ),
        (
            &["engine", "storyteller-11m", "--dtype", "f32", "--kv-dtype", "bf16"],
            "error: --kv-dtype bf16 does not go with weights stored as f32",
        ),
        (&["serve", "--kv-dtype", "int4"], "[possible values: auto, bf16, int8]"),
        (&["serve", "--router-mode", "random"], "error: invalid value 'random' for '--router-mode <MODE>'"),
        (&["serve", "--rooter-port", "1"], "error: unexpected argument '--rooter-port' found"),
        (&["serve", "--config", "/no/such.toml"], "error: /no/such.toml: No such file or directory"),
        (&["serve", "--router-host", "192.0.2.1"], "error: cannot listen on 192.0.2.1:8000"),
        (&["serve", "--host", "192.0.2.1", "--port", "8001"], "error: cannot listen on 192.0.2.1:8001"),
        (
            &["engine", "--mock", "--host", "192.0.2.1", "--port", "8001", "--no-engine-auth"],
            "error: --no-engine-auth is only for engines on a loopback address, not on 192.0.2.1",
        ),
        (
            &["engine", "m", "--listen", "127.0.0.1:0", "--port", "8001"],
            "error: the argument '--listen <ADDRESS>' cannot be used with '--port <PORT>'",
        ),
        (
            &["serve", "--endpoint-hosts", "127.0.0.1,127.0.0.1", "--endpoint-ports", "9001"],
            "error: the endpoint lists must be equally long, not 2 hosts, 1 ports",
        ),
        (&["serve", "--endpoint-hosts", "http://a"], "error: invalid value 'http://a' for '--endpoint-hosts <HOSTS>'"),
        (
            &["serve", "--endpoint-hosts", "203.0.113.7", "--endpoint-ports", "9001"],
            "error: no secret for the engines at 203.0.113.7:9001, which run already\n\
             hint: give the one they were started with: --secret-file or BATON_SECRET",
        ),
        (&["serve", "--model-lib", "tpu"], "[possible values: auto, cpu, mock]"),
        (&["router"], "error: the following required arguments were not provided:\n  --engine <URL=ROLE>"),
        (&["router", "--engine", "127.0.0.1:1=boss"], "\"boss\" is not a role; roles are prefill, decode and mixed"),
        (&["router", "--engine", "127.0.0.1:1"], "error: no secret for the engines at 127.0.0.1:1, which run already"),
        (&["engine", "no/such/model"], "error: no model \"no/such/model\""),
        (&["serve", "--secret-file", "/no/such"], "error: /no/such: No such file or directory"),
        (&["engine", "m", "--secret-file", "/dev/null"], "error: /dev/null: the secret is empty"),
        (
            &["engine", "m", "--no-engine-auth", "--listen", "0.0.0.0:0"],
            "error: --no-engine-auth is only for engines on a loopback address, not on 0.0.0.0",
        ),
        (
            &["serve", "--no-engine-auth", "--secret-file", "f"],
            "error: --secret-file and --no-engine-auth cannot both be set",
        ),
    ];
    for &(arguments, message) in cases {
        let output = run(arguments);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn mistyped_mock_options_are_named() {
    for (mock, message) in [
        ("prefil-ms=1", "error: there is no mock option \"prefil-ms\"\nhint: did you mean prefill-ms?"),
        ("colour=red", "error: there is no mock option \"colour\"\nhint: there are prefill-ms, "),
        ("decode-ms=fast", "error: mock option decode-ms must be a number from 0 to 3600000, not \"fast\""),
        ("some/model", "error: \"some/model\" is not a mock option"),
    ] {
        for command in ["engine", "serve"] {
            let output = run(&[command, "--mock", mock]);
            assert_eq!(output.status.code(), Some(2), "{command} {mock}");
            assert!(stderr(&output).contains(message), "{command} {mock}: {}", stderr(&output));
        }
    }
    let output = run(&["serve", "--mock", "decode-ms=1", "--model-lib", "cpu"]);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(2), "error: --mock is for --model-lib mock\n".to_owned())
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&["serve", "--router-port", &port]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("error: cannot listen on 127.0.0.1:{port}: Address already in use");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint: another program has this port; choose one with --port"));
}

#[test]
fn the_configuration_file_is_read_and_its_mistakes_are_named() {
    let directory = TempDir::new("toml");
    directory.file("baton.toml", "rooter-port = 1");
    let output = command(&["serve"]).current_dir(&directory.0).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "error: baton.toml: unknown key \"rooter-port\"\nhint: did you mean router-port?\n");
    let named = directory.file("other.toml", "model = 'no/such/model'");
    let output = run(&["serve", "--config", &named]);
    assert!(stderr(&output).contains("error: no model \"no/such/model\""), "{}", stderr(&output));
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let output = command(&["doctor"]).env("BATON_LOG", "loud").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: BATON_LOG=loud is not a log level"), "{}", stderr(&output));
}

#[test]
fn an_engine_that_dies_at_start_up_stops_the_launch_with_its_log() {
    let directory = TempDir::new("cut-off");
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/storyteller-11m");
    for file in fs::read_dir(bundled).unwrap().map(Result::unwrap) {
        let mut bytes = fs::read(file.path()).unwrap();
        if file.file_name() == "model.safetensors" {
            bytes.truncate(bytes.len() / 2);
        }
        directory.file(file.file_name().to_str().unwrap(), bytes);
    }
    let output = run(&["serve", directory.0.to_str().unwrap(), "--router-port", "0", "--prefill", "0"]);
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("error: engine decode-0 died while starting (exit status: 2); the end of its log:"),
        "{stderr}"
    );
    assert!(stderr.contains("  | error: model.safetensors"), "{stderr}");
    assert!(stderr.contains("decode-0 | error: model.safetensors"), "{stderr}");
}

#[test]
fn help_version_and_doctor_succeed() {
    for (arguments, words) in [
        (&["--version"] as &[_], &["baton 0."] as &[_]),
        (&["--help"], &["serve", "engine", "doctor", "Examples:"]),
        (&["serve", "--help"], &["--router-port", "[alias: --port]", "--kv-memory", "baton.toml", "Examples:"]),
        (&["simulate", "--help"], &["--workload", "short-chat", "h100-8b", "Examples:"]),
        (
            &["simulate", "--requests", "20", "--workload", "table", "--engines", "1"],
            &["round-robin", "TTFT", "goodput"],
        ),
        (&["doctor"], &["CPU", "kernels", "memory", "GFLOP/s", "storyteller-11m"]),
    ] {
        let output = run(arguments);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        for word in words {
            assert!(stdout.contains(word), "{arguments:?} without {word}: {stdout}");
        }
    }
}
