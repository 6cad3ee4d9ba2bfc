//! Whole answers: what reaches the engine, and what the client gets.

use std::collections::BTreeSet;

use baton_core::{AffinityKey, FinishReason, Limits, SamplingParams, ServeError, TokenId};
use baton_gateway::GatewayConfig;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::engine::Started;
use crate::server::{MODEL, Options, Server, chat, completion};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_completion() {
    let mut server = Server::start().await;
    let reply = server
        .post_with(COMPLETIONS, completion(json!({})), |started| {
            started.prompt(32);
            started.generate(0, " the cat", Some(FinishReason::Length));
        })
        .await;
    let body = reply.json();
    assert_eq!(reply.status, 200, "{body}");
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(reply.header("x-request-id"), body["id"].as_str());
    assert_eq!((&body["object"], &body["model"]), (&json!("text_completion"), &json!(MODEL)));
    assert_eq!(body["system_fingerprint"], "fp_ef2ec03cf486");
    assert!(body["created"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(body["choices"], json!([{"index": 0, "text": " the cat", "logprobs": null, "finish_reason": "length"}]));
    let prompt_tokens = crate::server::tokenizer().encode("Hello", baton_text::SpecialTokens::Add).unwrap().len();
    assert_eq!(
        body["usage"],
        json!({"prompt_tokens": prompt_tokens, "completion_tokens": 2, "total_tokens": prompt_tokens + 2,
            "prompt_tokens_details": {"cached_tokens": 32}})
    );
    assert_eq!((&body["timings"]["queue_ms"], &body["timings"]["prefill_ms"]), (&json!(1.5), &json!(20.0)));
}

#[tokio::test]
async fn a_chat() {
    let mut server = Server::start().await;
    let messages = json!([
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": null},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]);
    let mut prompt = String::new();
    let reply = server
        .post_with(CHAT, chat(json!({"messages": messages})), |started| {
            prompt = started.prompt_text();
            started.answer("Once<|im_end|>", FinishReason::StopToken);
        })
        .await;
    assert_eq!(
        prompt,
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n\
         <|im_start|>assistant\n"
    );
    let body = reply.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "message": {"role": "assistant", "content": "Once", "refusal": null}, "logprobs": null,
            "finish_reason": "stop"}])
    );
}

/// What the engine receives for a body.
async fn received(server: &mut Server, path: &str, body: Value) -> (SamplingParams, Limits) {
    let mut seen = None;
    let reply = server
        .post_with(path, body, |started| {
            seen = Some((started.request.sampling.clone(), started.request.limits.clone()));
            started.answer(" the", FinishReason::Length);
        })
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    seen.unwrap()
}

#[tokio::test]
async fn what_belongs_together_is_the_router_s_to_keep_together() {
    let mut server = Server::start().await;
    let cases = [
        (json!({}), None),
        (json!({"user": "ann"}), Some("ann")),
        (json!({"user": ""}), None),
        (json!({"prompt_cache_key": "thread 7"}), Some("thread 7")),
        (json!({"prompt_cache_key": "thread 7", "user": "ann"}), Some("thread 7")),
    ];
    for (fields, name) in cases {
        for (path, body) in [(COMPLETIONS, completion(fields.clone())), (CHAT, chat(fields.clone()))] {
            let mut affinity = None;
            let seen = |started: &mut Started| {
                affinity = started.request.affinity;
                started.answer(" the", FinishReason::Length);
            };
            server.post_with(path, body, seen).await;
            assert_eq!(affinity, name.map(AffinityKey::of), "{fields}");
        }
    }
}

#[tokio::test]
async fn what_is_absent_comes_from_the_model() {
    let mut server = Server::start().await;
    let prompt = json!({"model": MODEL, "prompt": "Hello"});
    let (sampling, limits) = received(&mut server, COMPLETIONS, prompt).await;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (0.7, 0.95, None));
    assert_eq!((limits.max_tokens, limits.min_tokens), (16, 0));
    assert_eq!(limits.stop_tokens, [TokenId(0), TokenId(2)]);

    let (_, limits) = received(&mut server, CHAT, json!({"messages": [{"role": "user", "content": "Hi"}]})).await;
    assert_eq!(limits.max_tokens, 256);
    let (_, limits) = received(&mut server, COMPLETIONS, json!({"prompt": vec![5; 2040]})).await;
    assert_eq!(limits.max_tokens, 8, "the rest of the context");
}

#[tokio::test]
async fn what_is_set_reaches_the_engine() {
    let mut server = Server::start().await;
    let fields = json!({"temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "presence_penalty": 1,
        "frequency_penalty": -1.5, "repetition_penalty": 1.25, "logit_bias": {"30": 100, "4": -1.5}, "seed": -1,
        "max_tokens": 9, "min_tokens": 3, "ignore_eos": true, "stop_token_ids": [7, 5, 7]});
    for path in [COMPLETIONS, CHAT] {
        let body = if path == CHAT { chat(fields.clone()) } else { completion(fields.clone()) };
        let (sampling, limits) = received(&mut server, path, body).await;
        assert_eq!(
            sampling,
            SamplingParams {
                temperature: 0.0,
                top_p: 0.5,
                top_k: Some(40),
                min_p: 0.1,
                presence_penalty: 1.0,
                frequency_penalty: -1.5,
                repetition_penalty: 1.25,
                logit_bias: vec![(TokenId(4), -1.5), (TokenId(30), 100.0)],
                seed: u64::MAX,
            }
        );
        let stop_tokens = vec![TokenId(5), TokenId(7)];
        assert_eq!(limits, Limits { max_tokens: 9, min_tokens: 3, stop_tokens });
    }
}

#[tokio::test]
async fn seeds_are_kept_or_drawn() {
    let mut server = Server::start().await;
    for (seed, expected) in [(json!(7), 7), (json!(i64::MIN), 1 << 63), (json!(u64::MAX), u64::MAX)] {
        assert_eq!(received(&mut server, COMPLETIONS, completion(json!({"seed": seed}))).await.0.seed, expected);
    }
    let mut drawn = BTreeSet::new();
    for _ in 0..8 {
        drawn.insert(received(&mut server, COMPLETIONS, completion(json!({}))).await.0.seed);
    }
    assert_eq!(drawn.len(), 8);
}

#[tokio::test]
async fn prompts_times_choices() {
    let mut server = Server::start().await;
    let body = completion(json!({"prompt": ["the", "cat"], "n": 2}));
    let reply = server
        .post_with(COMPLETIONS, body, |started| {
            started.prompt(16);
            let prompt = started.prompt_text();
            started.generate(1, &format!(" {prompt} one"), Some(FinishReason::Length));
            started.generate(0, &format!(" {prompt} zero"), Some(FinishReason::Length));
        })
        .await;
    let body = reply.json();
    let texts: Vec<_> =
        body["choices"].as_array().unwrap().iter().map(|c| (c["index"].as_u64(), c["text"].as_str())).collect();
    let expected = [" the zero", " the one", " cat zero", " cat one"];
    assert_eq!(texts, expected.iter().enumerate().map(|(i, t)| (Some(i as u64), Some(*t))).collect::<Vec<_>>());
    let usage = &body["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 32);
    let ids = |text: &str| crate::server::tokenizer().encode(text, baton_text::SpecialTokens::Add).unwrap().len();
    assert_eq!(usage["prompt_tokens"], ids("the") + ids("cat"));
    assert_eq!(usage["completion_tokens"], expected.iter().map(|text| ids(text)).sum::<usize>());
}

#[tokio::test]
async fn ids_are_a_prompt_and_nothing_is_the_beginning() {
    let mut server = Server::start().await;
    for (prompt, tokens) in [
        (json!([267, 5]), vec![vec![267, 5]]),
        (json!([[267], [5, 6]]), vec![vec![267], vec![5, 6]]),
        (json!(""), vec![vec![0]]),
    ] {
        let mut seen = Vec::new();
        let reply = server
            .post_with(COMPLETIONS, completion(json!({"prompt": prompt})), |started| {
                seen.push(started.request.prompt.iter().map(|token| token.0).collect::<Vec<_>>());
                started.answer(" the", FinishReason::Length);
            })
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        seen.sort_by_key(|prompt| tokens.iter().position(|expected| expected == prompt));
        assert_eq!(seen, tokens);
    }
}

#[tokio::test]
async fn echo_with_and_without_logprobs() {
    let mut server = Server::start().await;
    let answer = |started: &mut Started| started.answer(" cat", FinishReason::Length);
    let plain = server.post_with(COMPLETIONS, completion(json!({"prompt": "the", "echo": true})), answer).await.json();
    assert_eq!(plain["choices"][0]["text"], "the cat");

    let ids = completion(json!({"prompt": [267, 267], "echo": true, "logprobs": 1}));
    let choice = &server.post_with(COMPLETIONS, ids.clone(), answer).await.json()["choices"][0];
    assert_eq!(choice["text"], " the the cat");
    assert_eq!(
        choice["logprobs"],
        json!({
            "tokens": [" the", " the", " cat"],
            "token_logprobs": [null, -0.5, -0.5],
            "top_logprobs": [null, {" the": -0.5, "#": -2.0}, {" cat": -0.5, "#": -2.0}],
            "text_offset": [0, 4, 8],
        })
    );

    let mut scored = ids;
    scored["max_tokens"] = json!(0);
    let mut dropped = Vec::new();
    let reply = server.post_with(COMPLETIONS, scored, |started| {
        assert_eq!(started.request.limits.max_tokens, 1);
        started.prompt(0);
        let (_, never) = tokio::sync::oneshot::channel();
        dropped.push(std::mem::replace(&mut started.dropped, never));
    });
    let body = reply.await.json();
    assert_eq!(body["choices"][0]["text"], " the the");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["choices"][0]["logprobs"]["token_logprobs"], json!([null, -0.5]));
    assert_eq!(body["usage"]["completion_tokens"], 0);
    dropped.pop().unwrap().await.expect("the engine was stopped");
}

#[tokio::test]
async fn chat_logprobs_have_bytes() {
    let mut server = Server::start().await;
    let body = chat(json!({"logprobs": true, "top_logprobs": 2}));
    let reply = server.post_with(CHAT, body, |started| {
        assert_eq!(started.request.logprobs, Some(2));
        started.answer("é", FinishReason::Length);
    });
    let content = reply.await.json()["choices"][0]["logprobs"]["content"].clone();
    assert_eq!(
        content,
        json!([
            {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xC3], "top_logprobs": [
                {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xC3]}, {"token": "#", "logprob": -2.0, "bytes": [35]}]},
            {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xA9], "top_logprobs": [
                {"token": "\u{FFFD}", "logprob": -0.5, "bytes": [0xA9]}, {"token": "#", "logprob": -2.0, "bytes": [35]}]},
        ])
    );
}

#[tokio::test]
async fn a_stop_string_ends_its_choice_and_then_the_request() {
    let mut server = Server::start().await;
    let body = completion(json!({"n": 2, "stop": ["cat"], "max_tokens": 100}));
    let mut connection = Connection::open(server.address, "POST", COMPLETIONS, body.to_string().as_bytes()).await;
    let mut started = server.started().await;
    started.prompt(0);
    started.generate(0, " the cat", None);
    started.generate(0, " never sent", None);
    started.generate(1, " a dog, a", None);
    started.generate(1, " cat", None);
    (&mut started.dropped).await.expect("nothing more is wanted");
    let reply = connection.read_to_end().await.json();
    let choices = reply["choices"].as_array().unwrap();
    assert_eq!((&choices[0]["text"], &choices[0]["finish_reason"]), (&json!(" the "), &json!("stop")));
    assert_eq!((&choices[1]["text"], &choices[1]["finish_reason"]), (&json!(" a dog, a "), &json!("stop")));
    let ids = |text: &str| crate::server::tokenizer().encode(text, baton_text::SpecialTokens::Add).unwrap().len();
    assert_eq!(reply["usage"]["completion_tokens"], ids(" the cat") + ids(" a dog, a cat"));
}

#[tokio::test]
async fn failures_have_their_status() {
    let mut server = Server::start().await;
    let never = baton_core::Retry::Never;
    for (error, status, kind) in [
        (ServeError::caller("too long").about("prompt"), 400, "invalid_request_error"),
        (ServeError { retry: never, ..ServeError::engine("broken") }, 500, "server_error"),
        (
            ServeError { retry: baton_core::Retry::AfterMs(60_000), ..ServeError::busy("full", 0) },
            429,
            "rate_limit_error",
        ),
    ] {
        for stream in [false, true] {
            let body = completion(json!({"stream": stream}));
            let reply = server.post_with(COMPLETIONS, body, |started| started.fail(error.clone())).await;
            assert_eq!((reply.status, &reply.json()["error"]["type"]), (status, &json!(kind)), "{}", reply.body);
            assert_eq!(reply.header("retry-after"), (status == 429).then_some("60"));
        }
    }
}

#[tokio::test]
async fn more_requests_than_allowed_are_refused_for_a_while() {
    let gateway = GatewayConfig { max_inflight: 1, ..GatewayConfig::default() };
    let mut server = Server::with(Options { gateway, ..Options::default() }).await;
    let body = completion(json!({})).to_string();
    let mut first = Connection::open(server.address, "POST", COMPLETIONS, body.as_bytes()).await;
    let mut started = server.started().await;
    let refused = server.post(COMPLETIONS, completion(json!({}))).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(server.get("/health").await.status, 200);
    started.answer(" the", FinishReason::Length);
    assert_eq!(first.read_to_end().await.status, 200);
    assert_eq!(server.post(COMPLETIONS, completion(json!({}))).await.status, 200);
}
