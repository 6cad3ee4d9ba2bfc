//! A deployment answers.

use serde_json::json;

use crate::baton::Baton;
use crate::http::{Events, get, post};

#[test]
fn one_command_serves_chat_and_completions() {
    let baton = Baton::serve(&[]);
    assert_eq!(get(baton.address, "/ready").0, 200);
    let chat = json!({"messages": [{"role": "user", "content": "Tell me a story about a brave cat."}], "max_tokens": 40, "seed": 1});
    let (status, answer) = post(baton.address, "/v1/chat/completions", &chat);
    assert_eq!(status, 200, "{answer}");
    let story = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(story.split_whitespace().count() > 10, "{story}");
    let completion = json!({"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0});
    let (_, whole) = post(baton.address, "/v1/completions", &completion);
    let mut streamed = completion.clone();
    streamed["stream"] = json!(true);
    let text = Events::open(baton.address, "/v1/completions", &streamed).rest().unwrap();
    assert_eq!(whole["choices"][0]["text"], text);
    assert_eq!(whole["usage"]["completion_tokens"], 32);
}

#[test]
fn two_engines_share_the_work_and_agree() {
    let baton = Baton::serve(&["--decode", "2", "--router-mode", "round-robin", "--threads", "1"]);
    assert_eq!(baton.engines().len(), 2);
    let completion = json!({"prompt": "The sun", "max_tokens": 16, "temperature": 1, "seed": 7});
    let texts: Vec<_> = (0..4)
        .map(|_| {
            post(baton.address, "/v1/completions", &completion).1["choices"][0]["text"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let metrics = get(baton.address, "/metrics").1;
    let served: Vec<_> = metrics.lines().filter(|line| line.starts_with("baton_generated_tokens_total{")).collect();
    assert_eq!(served.len(), 2, "{metrics}");
    // One token each was the readiness probe.
    assert!(served.iter().all(|line| line.ends_with(" 33")), "{served:?}");
}
