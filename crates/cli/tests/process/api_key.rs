//! A key for the gateway: required, sent by our own clients, and shown nowhere.

use std::fs;

use crate::baton::{Baton, TempDir, command};
use crate::http::{get, get_with};

const KEY: &str = "sk-of-this-test";

#[test]
fn clients_send_the_key_and_nothing_shows_it() {
    let baton = Baton::serve_in(&["--mock", "decode-ms=1", "--host", "0.0.0.0"], &[("BATON_API_KEY", KEY)]);
    let local = ([127, 0, 0, 1], baton.address.port()).into();
    assert_eq!(get(local, "/ready").0, 200);
    assert_eq!(get(local, "/v1/models").0, 401);
    assert_eq!(get_with(local, "/v1/models", "authorization: Bearer something else\r\n").0, 401);
    assert_eq!(get_with(local, "/v1/models", &format!("authorization: Bearer {KEY}\r\n")).0, 200);

    let url = format!("http://{local}");
    for (arguments, variable, key, succeeds) in [
        (vec!["--api-key", KEY], "UNRELATED", "", true),
        (vec![], "BATON_API_KEY", KEY, true),
        (vec![], "OPENAI_API_KEY", KEY, true),
        (vec![], "OPENAI_API_KEY", "another", false),
        (vec![], "UNRELATED", "", false),
    ] {
        for client in [vec!["chat"], vec!["bench", "serve", "--requests", "1", "--warmup", "0", "--users", "1"]] {
            let all = [client, vec!["--url", &url], arguments.clone()].concat();
            let output = command(&all).env(variable, key).stdin(std::process::Stdio::null()).output().unwrap();
            let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(output.status.success(), succeeds, "{all:?}: {printed}");
            assert!(succeeds || printed.contains("API key"), "{printed}");
            assert!(!printed.contains(KEY), "{printed}");
        }
    }

    assert!(!baton.log().contains(KEY) && !baton.log().contains("warning"), "{}", baton.log());
    for engine in baton.engines() {
        for file in ["environ", "cmdline"] {
            let known = String::from_utf8_lossy(&fs::read(format!("/proc/{engine}/{file}")).unwrap()).into_owned();
            assert!(!known.contains(KEY), "{file}: {known}");
        }
    }
}

#[test]
fn a_server_that_everybody_can_use_warns() {
    let warns = |flags: &[&str]| {
        Baton::serve(&[&["--mock", "decode-ms=1"], flags].concat()).log().contains("warning: everybody")
    };
    assert!(warns(&["--host", "0.0.0.0"]));
    assert!(!warns(&["--host", "0.0.0.0", "--api-key", KEY]));
    assert!(!warns(&[]));
}

#[test]
fn a_bad_key_is_refused_and_not_repeated() {
    let directory = TempDir::new("api-key");
    directory.file("baton.toml", "api-key = 'sk of this test'");
    for (arguments, variable, message) in [
        (&["--api-key", "sk of this test"] as &[_], "", "error: --api-key: a key is one line of visible ASCII"),
        (&["--api-key", ""], "", "error: --api-key: the key is empty"),
        (&[], "sk of this test", "error: --api-key: a key is one line"),
    ] {
        let all = [&["serve"], arguments].concat();
        let output = command(&all).env("BATON_API_KEY", variable).current_dir(&directory.0).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message) && !stderr.contains("of this test"), "{stderr}");
    }
    let output = command(&["serve"]).env("BATON_API_KEY", "sk of this test").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("error: BATON_API_KEY: a key is one line") && !stderr.contains("of this test"), "{stderr}");
}
