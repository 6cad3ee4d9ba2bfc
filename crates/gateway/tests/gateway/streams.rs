//! Streamed answers, as bytes.

use baton_core::{FinishReason, ServeError};
use serde_json::{Value, json};

use crate::client::{Connection, Reply};
use crate::server::{Server, chat, completion};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn choices(reply: &Reply) -> Vec<Value> {
    reply.chunks().into_iter().flat_map(|chunk| chunk["choices"].as_array().unwrap().clone()).collect()
}

#[tokio::test]
async fn a_completion_as_bytes() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let reply = server.post_with(COMPLETIONS, body, |started| {
        started.prompt(0);
        started.generate(0, " the cat", Some(FinishReason::Length));
    });
    let reply = reply.await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    let chunks = reply.chunks();
    let (id, created) = (&chunks[0]["id"], &chunks[0]["created"]);
    assert_eq!(reply.header("x-request-id"), id.as_str());
    let chunk = |choices: &str, cost: &str| {
        format!(
            "data: {{\"id\":{id},\"object\":\"text_completion\",\"created\":{created},\"model\":\"storyteller-11m\",\
             \"system_fingerprint\":\"fp_ef2ec03cf486\",\"choices\":[{choices}],\"usage\":{cost}}}\n\n"
        )
    };
    let prompt_tokens = crate::server::tokenizer().encode("Hello", baton_text::SpecialTokens::Add).unwrap().len();
    let usage = format!(
        "{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":2,\"total_tokens\":{},\
         \"prompt_tokens_details\":{{\"cached_tokens\":0}}}}",
        prompt_tokens + 2
    );
    let decode_ms = &chunks[2]["timings"]["decode_ms"];
    assert!((0.0..1000.0).contains(&decode_ms.as_f64().unwrap()), "{decode_ms}");
    let timings = format!(r#"{{"queue_ms":1.5,"prefill_ms":20.0,"handoff_ms":3.0,"decode_ms":{decode_ms}}}"#);
    let expected = [
        chunk(r#"{"index":0,"text":" the","logprobs":null,"finish_reason":null}"#, "null"),
        chunk(r#"{"index":0,"text":" cat","logprobs":null,"finish_reason":"length"}"#, "null"),
        chunk("", &format!("{usage},\"timings\":{timings}")),
        "data: [DONE]\n\n".to_owned(),
    ];
    assert_eq!(reply.body, expected.concat());
}

#[tokio::test]
async fn a_chat_opens_with_its_role() {
    let mut server = Server::start().await;
    let reply = server
        .post_with(CHAT, chat(json!({"stream": true, "n": 2})), |started| {
            started.prompt(0);
            started.generate(1, " the", None);
            started.generate(0, " cat<|im_end|>", Some(FinishReason::StopToken));
            started.generate(1, " cat", Some(FinishReason::Length));
        })
        .await;
    assert!(
        reply.chunks().iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk.get("usage").is_none())
    );
    let chunk = |index: u32, delta: Value, finish: Value| json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
    assert_eq!(
        choices(&reply),
        [
            chunk(0, json!({"role": "assistant", "content": ""}), Value::Null),
            chunk(1, json!({"role": "assistant", "content": ""}), Value::Null),
            chunk(1, json!({"content": " the"}), Value::Null),
            chunk(0, json!({"content": " cat"}), Value::Null),
            chunk(0, json!({}), json!("stop")),
            chunk(1, json!({"content": " cat"}), json!("length")),
        ]
    );
}

#[tokio::test]
async fn every_token_is_sent_when_it_is_made() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true})).to_string();
    let mut connection = Connection::open(server.address, "POST", COMPLETIONS, body.as_bytes()).await;
    let mut started = server.started().await;
    started.prompt(0);
    started.generate(0, " the", None);
    connection.read_until("\" the\"").await;
    started.generate(0, " cat", None);
    connection.read_until("\" cat\"").await;
    assert!(!connection.received().contains("[DONE]"));
    started.generate(0, " sat", Some(FinishReason::Length));
    assert!(connection.read_to_end().await.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn half_characters_and_possible_stops_wait() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true, "stop": ["cat and"], "logprobs": 0}));
    let reply =
        server.post_with(COMPLETIONS, body, |started| started.answer("é the cat but", FinishReason::Length)).await;
    let received: Vec<_> = choices(&reply)
        .iter()
        .map(|c| (c["text"].clone(), c["logprobs"]["tokens"].clone(), c["logprobs"]["text_offset"].clone()))
        .collect();
    assert_eq!(
        received,
        [
            (json!("é"), json!(["bytes:\\xc3", "bytes:\\xa9"]), json!([0, 0])),
            (json!(" the"), json!([" the"]), json!([1])),
            (json!(" "), json!([" cat"]), json!([5])),
            (json!("cat but"), json!([" but"]), json!([9])),
        ]
    );
}

#[tokio::test]
async fn echo_comes_first() {
    let mut server = Server::start().await;
    let body = completion(json!({"stream": true, "echo": true, "prompt": "the", "n": 2}));
    let reply = server.post_with(COMPLETIONS, body, |started| started.answer(" cat", FinishReason::Length)).await;
    let received: Vec<_> = choices(&reply)
        .iter()
        .map(|c| (c["index"].as_u64().unwrap(), c["text"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [(0, "the"), (1, "the"), (0, " cat"), (1, " cat")];
    assert_eq!(received, expected.map(|(index, text)| (index, text.to_owned())));
}

#[tokio::test]
async fn a_failure_in_the_middle_ends_the_stream_without_done() {
    let mut server = Server::start().await;
    let error = ServeError { retry: baton_core::Retry::Never, ..ServeError::engine("the engine broke") };
    let reply = server
        .post_with(CHAT, chat(json!({"stream": true})), |started| {
            started.prompt(0);
            started.generate(0, " the", None);
            started.fail(error.clone());
        })
        .await;
    assert_eq!(reply.status, 200);
    let events = reply.events();
    assert_eq!(
        events.last(),
        Some(&r#"{"error":{"message":"the engine broke","type":"server_error","param":null,"code":null}}"#)
    );
    assert_eq!(events.len(), 3);
}
