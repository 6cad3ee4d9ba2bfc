//! Every kind of bad input gets its status, its field and a message that helps; the next request is served.

use baton_gateway::GatewayConfig;
use serde_json::{Value, json};

use crate::client::{Reply, call};
use crate::server::{MODEL, Options, Server, chat, completion};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// (path, body, field, part of the message), all of them 400.
fn table() -> Vec<(&'static str, Value, Option<&'static str>, &'static str)> {
    let long = "cat ".repeat(4000);
    let part = |part: Value| json!([{"role": "user", "content": [part]}]);
    let mut rows = vec![
        (COMPLETIONS, json!([1, 2]), None, "JSON object"),
        (COMPLETIONS, json!({"model": MODEL}), Some("prompt"), "prompt is missing"),
        (COMPLETIONS, json!({"prompt": null}), Some("prompt"), "prompt is missing"),
        (COMPLETIONS, completion(json!({"prompt": vec![5; 2000], "max_tokens": 100})), Some("max_tokens"), "2100"),
        (COMPLETIONS, completion(json!({"min_tokens": 5})), Some("min_tokens"), "max_tokens"),
        (COMPLETIONS, completion(json!({"stream_options": {"include_usage": true}})), Some("stream_options"), "stream"),
        (
            COMPLETIONS,
            completion(json!({"stream": true, "stream_options": {"include_usage": 1}})),
            Some("stream_options"),
            "stream_options.include_usage: expected true or false",
        ),
        (COMPLETIONS, completion(json!({"prompt": vec!["x"; 600], "n": 2})), Some("prompt"), "1024"),
        (COMPLETIONS, completion(json!({"prompt": vec![[5]; 1025]})), Some("prompt"), "1024"),
        (
            COMPLETIONS,
            completion(json!({"prompt": vec!["x"; 1024], "stop_token_ids": (0..4096).collect::<Vec<_>>()})),
            Some("stop_token_ids"),
            "4096 entries for each of 1024 prompts",
        ),
        (CHAT, json!({"model": MODEL}), Some("messages"), "missing"),
        (CHAT, chat(json!({"top_logprobs": 3})), Some("top_logprobs"), "logprobs"),
        (CHAT, chat(json!({"logprobs": true, "top_logprobs": 21})), Some("top_logprobs"), "between 0 and 20"),
        ("/tokenize", json!({"prompt": 5}), Some("prompt"), "expected a string"),
        ("/tokenize", json!({}), Some("prompt"), "prompt or messages is missing"),
        ("/detokenize", json!({"tokens": [5000]}), Some("tokens"), "5000"),
        ("/detokenize", json!({"tokens": "x"}), Some("tokens"), "expected a list"),
        ("/detokenize", json!({}), Some("tokens"), "missing"),
    ];
    let completions: [(&str, Value, &str); 57] = [
        ("prompt", json!(7), "expected a string, a list of strings"),
        ("prompt", json!([]), "empty"),
        ("prompt", json!([[]]), "prompt[0]: the list is empty"),
        ("prompt", json!([[1], []]), "prompt[1]: the list is empty"),
        ("prompt", json!(["a", 1]), "prompt[1]: expected a string"),
        ("prompt", json!([1, "a"]), "prompt[1]: expected an integer"),
        ("prompt", json!([null]), "prompt[0]: expected an integer"),
        ("prompt", json!([4096]), "4096 is not a token id"),
        ("prompt", json!([[5], [6, 4096]]), "prompt[1][1]: 4096"),
        ("prompt", json!([-1]), "-1 is not a token id"),
        ("prompt", json!([1_u64 << 40]), "is not a token id"),
        ("prompt", json!([u64::MAX]), "expected an integer"),
        ("prompt", json!([1.5]), "expected an integer"),
        ("prompt", json!(vec![5; 2049]), "2049 tokens"),
        ("prompt", json!(vec![5; 2048]), "2048 tokens, and"),
        ("prompt", json!(long), "2048"),
        ("prompt", json!("日".repeat(3_000_000)), "2048"),
        ("suffix", json!("end"), "suffix"),
        ("suffix", json!(5), "expected a string"),
        ("best_of", json!(3), "best_of is 3"),
        ("best_of", json!(0), "between 1"),
        ("best_of", json!("all"), "expected an integer"),
        ("model", json!(3), "expected a string"),
        ("n", json!(0), "between 1 and 128"),
        ("n", json!(1_000_000_000), "between 1 and 128"),
        ("n", json!("two"), "expected an integer"),
        ("max_tokens", json!(-1), "between 0"),
        ("max_tokens", json!(1e30), "expected an integer"),
        ("temperature", json!(-0.1), "between 0 and 2"),
        ("temperature", json!(2.1), "between 0 and 2"),
        ("temperature", json!("hot"), "expected a number"),
        ("top_p", json!(0), "above 0"),
        ("top_p", json!(1.01), "at most 1"),
        ("top_k", json!(-5), "between -1"),
        ("min_p", json!(1.5), "between 0 and 1"),
        ("presence_penalty", json!(3), "between -2 and 2"),
        ("frequency_penalty", json!(-3), "between -2 and 2"),
        ("repetition_penalty", json!(0), "0.01"),
        ("repetition_penalty", json!(1e-300), "0.01"),
        ("logit_bias", json!({"5": 101}), "between -100 and 100"),
        ("logit_bias", json!({"5000": 1}), "5000"),
        ("logit_bias", json!({"cat": 1}), "cat"),
        ("logit_bias", json!({"5": "x"}), "expected a number"),
        ("logit_bias", json!([5]), "expected an object"),
        ("logprobs", json!(1000), "between 0 and 20"),
        ("logprobs", json!(true), "expected an integer"),
        ("stop", json!(["x"; 100].as_slice()), "16"),
        ("stop", json!([""]), "empty"),
        ("stop", json!(""), "empty"),
        ("stop", json!(5), "expected a list"),
        ("stop", json!("x".repeat(5000)), "4096 bytes"),
        ("stop", json!(["a", 5]), "stop[1]: expected a string"),
        ("stop_token_ids", json!([9999]), "9999"),
        ("seed", json!("x"), "expected an integer"),
        ("seed", json!(1.5), "expected an integer"),
        ("stream", json!("yes"), "true or false"),
        ("echo", json!(1), "true or false"),
    ];
    rows.extend(
        completions.map(|(field, value, part)| (COMPLETIONS, completion(json!({field: value})), Some(field), part)),
    );
    let chats: [(&str, Value, &str); 27] = [
        ("messages", json!(vec![json!({"role": "user", "content": ""}); 4097]), "4096"),
        ("messages", json!([]), "empty"),
        ("messages", json!("Hello"), "expected a list"),
        ("messages", json!(["Hello"]), "messages[0]: expected an object"),
        ("messages", json!([{"content": "x"}]), "messages[0].role"),
        ("messages", json!([{"role": "king", "content": "x"}]), "\"king\" is not a role"),
        ("messages", json!([{"role": "user"}]), "messages[0].content: content is missing"),
        ("messages", json!([{"role": "user", "content": null}]), "messages[0].content"),
        ("messages", json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (
            "messages",
            part(json!({"type": "image_url", "image_url": {"url": "x"}})),
            "messages[0].content[0]: parts of type \"image_url\"",
        ),
        ("messages", part(json!({"type": "text"})), "text is missing"),
        ("messages", part(json!({"type": "text", "text": 5})), "messages[0].content[0].text"),
        ("messages", part(json!({})), "type is missing"),
        ("messages", json!([{"role": "tool", "content": "x", "tool_call_id": "1"}]), "tools"),
        ("messages", json!([{"role": "assistant", "content": null, "tool_calls": [{}]}]), "tool_calls"),
        ("messages", json!([{"role": "user", "content": long}]), "2048"),
        ("max_tokens", json!(0), "between 1"),
        ("max_tokens", json!(2048), "2048"),
        ("max_completion_tokens", json!(5000), "5000 to generate"),
        ("logprobs", json!(3), "true or false"),
        ("response_format", json!({"type": "json_object"}), "text"),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}]), "tools"),
        ("functions", json!([{"name": "f"}]), "tools"),
        ("modalities", json!(["text", "audio"]), "text"),
        ("audio", json!({"voice": "x"}), "not supported"),
        ("best_of", json!(2), "best_of is 2"),
        ("guided_json", json!({"type": "object"}), "not supported"),
    ];
    rows.extend(chats.map(|(field, value, part)| (CHAT, chat(json!({field: value})), Some(field), part)));
    rows
}

fn assert_refused(reply: &Reply, status: u16, field: Option<&str>, part: &str) {
    let body = reply.json();
    assert_eq!(reply.status, status, "{body}");
    let error = body["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message", "param", "type"], "{body}");
    assert_eq!(error["type"], "invalid_request_error", "{body}");
    assert!(error["message"].as_str().unwrap().contains(part), "{part:?} in {body}");
    assert_eq!(error["param"].as_str(), field, "{body}");
}

#[tokio::test]
async fn refused_and_the_next_works() {
    let mut server = Server::start().await;
    for (path, body, field, part) in table() {
        assert_refused(&server.post(path, body).await, 400, field, part);
        assert_eq!(server.post(COMPLETIONS, completion(json!({}))).await.status, 200);
    }
}

#[tokio::test]
async fn what_exceeds_the_context_is_refused_in_openais_words() {
    let mut server = Server::start().await;
    let long = json!(vec![5; 3000]);
    let messages = json!([{"role": "user", "content": "cat ".repeat(3000)}]);
    for (path, body, param, rest) in [
        (
            COMPLETIONS,
            completion(json!({"prompt": long})),
            "prompt",
            "your prompt resulted in 3000 tokens, and the answer needs one at least. Please reduce the length of the prompt.",
        ),
        (
            COMPLETIONS,
            completion(json!({"prompt": vec![5; 2000], "max_tokens": 100})),
            "max_tokens",
            "you requested 2100 tokens (2000 in the prompt, 100 to generate). Please reduce the length of the prompt, or max_tokens.",
        ),
        (CHAT, chat(json!({"messages": messages})), "messages", "Please reduce the length of the messages."),
    ] {
        let reply = server.post(path, body).await;
        assert_refused(&reply, 400, Some(param), rest);
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("This model's maximum context length is 2048 tokens. However, you"), "{message}");
    }
}

#[tokio::test]
async fn a_best_of_that_asks_for_no_more_than_n_is_accepted() {
    let mut server = Server::start().await;
    for (n, best_of) in [(1, 1), (2, 1), (2, 2), (3, 2)] {
        for (path, body) in [
            (COMPLETIONS, completion(json!({"n": n, "best_of": best_of}))),
            (CHAT, chat(json!({"n": n, "best_of": best_of}))),
        ] {
            let reply = server.post(path, body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert_eq!(reply.json()["choices"].as_array().unwrap().len(), n);
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_json() {
    let mut server = Server::start().await;
    for body in [b"".as_slice(), b"{not json", b"{\"prompt\": \"\xff\xfe\"}", b"{\"top_p\": NaN}"] {
        assert_refused(&call(server.address, "POST", COMPLETIONS, body).await, 400, None, "JSON");
    }
    // The grammar is right, the value is not: the message names the field.
    for (body, field) in [("{\"prompt\": \"\\ud800\"}", "prompt"), ("{\"prompt\": \"a\", \"top_p\": 1e999}", "top_p")] {
        assert_refused(&call(server.address, "POST", COMPLETIONS, body.as_bytes()).await, 400, Some(field), field);
    }
    assert_eq!(server.post(COMPLETIONS, completion(json!({}))).await.status, 200);
}

#[tokio::test]
async fn models_paths_and_methods() {
    let mut server = Server::start().await;
    for path in [COMPLETIONS, CHAT, "/tokenize"] {
        let reply = server.post(path, json!({"model": "gpt-4"})).await;
        assert_refused(&reply, 404, Some("model"), "gpt-4");
        assert_eq!(reply.json()["error"]["code"], "model_not_found");
    }
    let reply = server.post(COMPLETIONS, json!({"model": "x".repeat(1 << 20)})).await;
    assert!(reply.status == 404 && reply.body.len() < 500, "a long name is not repeated");
    assert_refused(&server.get("/v1/models/gpt-4").await, 404, Some("model"), "gpt-4");
    assert_refused(&server.post("/v1/nothing", json!({})).await, 404, None, "/v1/nothing");
    let wrong_method = server.get(COMPLETIONS).await;
    assert_refused(&wrong_method, 405, None, "GET");
    assert_eq!(wrong_method.header("allow"), Some("POST"));
}

#[tokio::test]
async fn a_body_over_the_limit_is_read_and_refused() {
    let options =
        Options { gateway: GatewayConfig { max_body_bytes: 1000, ..GatewayConfig::default() }, ..Options::default() };
    let mut server = Server::with(options).await;
    let reply = call(server.address, "POST", COMPLETIONS, &vec![b' '; 20 << 20]).await;
    assert_refused(&reply, 413, None, "1000 bytes");
    assert_eq!(server.post(COMPLETIONS, completion(json!({}))).await.status, 200);
}

#[tokio::test]
async fn a_model_without_template_or_beginning() {
    let mut server = Server::with(Options { template: false, bos: false, ..Options::default() }).await;
    assert_refused(&server.post(CHAT, chat(json!({}))).await, 400, Some("model"), "chat_template.jinja");
    assert_refused(&server.post(COMPLETIONS, completion(json!({"prompt": ""}))).await, 400, Some("prompt"), "empty");
}

#[tokio::test]
async fn fields_that_mean_nothing_here_are_ignored() {
    let mut server = Server::start().await;
    let fields = json!({"store": true, "metadata": {"a": "b"}, "user": "me", "tool_choice": "none", "tools": [{}],
        "response_format": {"type": "text"}, "parallel_tool_calls": true, "stop": null, "n": null, "seed": null,
        "logit_bias": {}, "modalities": ["text"], "whatever": [1]});
    let reply = server.post(CHAT, chat(fields)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}
