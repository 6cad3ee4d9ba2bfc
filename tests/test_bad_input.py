"""Bad input of every kind gets the right 4xx in OpenAI's shape, and the next request works."""
import socket

import pytest

MODEL = "storyteller-11m"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def completion(**fields):
    return {"model": MODEL, "prompt": "Hello", "max_tokens": 4} | fields


def chat(**fields):
    return {"model": MODEL, "messages": HELLO, "max_tokens": 4} | fields


# (path, body, status, param, part of the message)
TABLE = [
    (COMPLETIONS, b"{not json", 400, None, "JSON"),
    (COMPLETIONS, b"", 400, None, "JSON"),
    (COMPLETIONS, b"[1, 2]", 400, None, ""),
    (COMPLETIONS, b'{"prompt": "\xff\xfe"}', 400, None, ""),
    (COMPLETIONS, b'{"model": "storyteller-11m", "prompt": "\\ud800"}', 400, None, ""),
    (COMPLETIONS, {"model": MODEL}, 400, "prompt", "prompt"),
    (COMPLETIONS, completion(prompt=7), 400, "prompt", ""),
    (COMPLETIONS, completion(prompt=[]), 400, "prompt", "empty"),
    (COMPLETIONS, completion(prompt=[[]]), 400, "prompt", "empty"),
    (COMPLETIONS, completion(prompt=["a", 1]), 400, "prompt", ""),
    (COMPLETIONS, completion(prompt=[4096]), 400, "prompt", "4096"),
    (COMPLETIONS, completion(prompt=[-1]), 400, "prompt", ""),
    (COMPLETIONS, completion(prompt=[2**40]), 400, "prompt", ""),
    (COMPLETIONS, completion(prompt=[1.5]), 400, "prompt", ""),
    (COMPLETIONS, completion(prompt=[5] * 2049), 400, "prompt", "2048"),
    (COMPLETIONS, completion(prompt="cat " * 4000), 400, "prompt", "2048"),
    (COMPLETIONS, completion(prompt=[5] * 2000, max_tokens=100), 400, "max_tokens", "2048"),
    (COMPLETIONS, completion(suffix="end"), 400, "suffix", "suffix"),
    (COMPLETIONS, completion(best_of=3), 400, "best_of", ""),
    (COMPLETIONS, completion(model="gpt-4"), 404, "model", "gpt-4"),
    (COMPLETIONS, completion(model=3), 400, "model", ""),
    (COMPLETIONS, completion(n=0), 400, "n", ""),
    (COMPLETIONS, completion(n=10**9), 400, "n", ""),
    (COMPLETIONS, completion(n="two"), 400, "n", ""),
    (COMPLETIONS, completion(max_tokens=-1), 400, "max_tokens", ""),
    (COMPLETIONS, completion(max_tokens="many"), 400, "max_tokens", ""),
    (COMPLETIONS, completion(temperature=-0.1), 400, "temperature", ""),
    (COMPLETIONS, completion(temperature=2.1), 400, "temperature", ""),
    (COMPLETIONS, completion(temperature="hot"), 400, "temperature", ""),
    (COMPLETIONS, completion(temperature=float("nan")), 400, None, ""),
    (COMPLETIONS, completion(top_p=0), 400, "top_p", ""),
    (COMPLETIONS, completion(top_p=1.01), 400, "top_p", ""),
    (COMPLETIONS, completion(top_k=-5), 400, "top_k", ""),
    (COMPLETIONS, completion(min_p=1.5), 400, "min_p", ""),
    (COMPLETIONS, completion(presence_penalty=3), 400, "presence_penalty", ""),
    (COMPLETIONS, completion(frequency_penalty=-3), 400, "frequency_penalty", ""),
    (COMPLETIONS, completion(repetition_penalty=0), 400, "repetition_penalty", ""),
    (COMPLETIONS, completion(repetition_penalty=1e-300), 400, "repetition_penalty", ""),
    (COMPLETIONS, completion(stop_token_ids=list(range(4096)), min_tokens=1), 400, "stop_token_ids", "min_tokens"),
    (COMPLETIONS, completion(min_tokens=5), 400, "min_tokens", "max_tokens"),
    (COMPLETIONS, completion(logit_bias={"5": 101}), 400, "logit_bias", ""),
    (COMPLETIONS, completion(logit_bias={"5000": 1}), 400, "logit_bias", "5000"),
    (COMPLETIONS, completion(logit_bias={"cat": 1}), 400, "logit_bias", "cat"),
    (COMPLETIONS, completion(logprobs=1000), 400, "logprobs", ""),
    (COMPLETIONS, completion(stop=["x"] * 100), 400, "stop", ""),
    (COMPLETIONS, completion(stop=[""]), 400, "stop", "empty"),
    (COMPLETIONS, completion(stop=5), 400, "stop", ""),
    (COMPLETIONS, completion(stop_token_ids=[9999]), 400, "stop_token_ids", ""),
    (COMPLETIONS, completion(seed="x"), 400, "seed", ""),
    (COMPLETIONS, completion(stream="yes"), 400, "stream", ""),
    (COMPLETIONS, completion(stream_options={"include_usage": True}), 400, "stream_options", "stream"),
    (CHAT, chat(messages=[]), 400, "messages", ""),
    (CHAT, chat(messages="Hello"), 400, "messages", ""),
    (CHAT, {"model": MODEL}, 400, "messages", ""),
    (CHAT, chat(messages=[{"role": "user"}]), 400, None, "content"),
    (CHAT, chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), 400, None, "image_url"),
    (CHAT, chat(messages=[{"role": "user", "content": "cat " * 4000}]), 400, "messages", "2048"),
    (CHAT, chat(top_logprobs=3), 400, "top_logprobs", "logprobs"),
    (CHAT, chat(logprobs=True, top_logprobs=21), 400, "top_logprobs", ""),
    (CHAT, chat(response_format={"type": "json_object"}), 400, "response_format", ""),
    (CHAT, chat(tools=[{"type": "function", "function": {"name": "f"}}]), 400, "tools", ""),
    ("/tokenize", {"prompt": 5}, 400, "prompt", ""),
    ("/tokenize", {}, 400, "prompt", "messages"),
    ("/detokenize", {"tokens": [5000]}, 400, "tokens", "5000"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens", ""),
    ("/v1/nothing", {}, 404, None, "/v1/nothing"),
]


@pytest.mark.parametrize("path, body, status, param, message", TABLE, ids=[f"{i}-{row[3] or row[0][1:]}" for i, row in enumerate(TABLE)])
def test_refused_and_the_next_works(baton, path, body, status, param, message):
    got, answer = baton.call(path, body)
    assert got == status, answer
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert message in error["message"] and len(error["message"]) > 10
    if param:
        assert error["param"] == param, error
    assert baton.call(COMPLETIONS, completion())[0] == 200


def test_wrong_method_and_huge_body(baton):
    assert baton.call(COMPLETIONS, method="GET")[0] == 405
    status, answer = baton.call(COMPLETIONS, b" " * (64 << 20))
    assert status == 413 and answer["error"]["type"] == "invalid_request_error"
    assert baton.call(COMPLETIONS, completion())[0] == 200


def test_unknown_model_code(baton):
    assert baton.call(COMPLETIONS, completion(model="gpt-4"))[1]["error"]["code"] == "model_not_found"
    assert baton.call("/v1/models/gpt-4")[0] == 404


def test_garbage_on_the_socket(baton):
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET /health\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\ncontent-length: 9999\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", baton.port)) as raw:
            raw.sendall(garbage)
    assert baton.call(COMPLETIONS, completion())[0] == 200


def test_cors(baton):
    import httpx

    preflight = httpx.options(baton.url + CHAT, headers={
        "origin": "http://example.org", "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    })
    assert preflight.status_code in (200, 204)
    assert preflight.headers["access-control-allow-origin"] == "*"
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert allowed == "*" or ("authorization" in allowed and "content-type" in allowed)
    plain = httpx.get(baton.url + "/v1/models", headers={"origin": "http://example.org"})
    assert plain.headers["access-control-allow-origin"] == "*"


def test_service_routes(baton):
    assert baton.call("/health")[0] == 200
    assert baton.call("/ready")[0] == 200
    ids = baton.tokens("Once upon a time, a naïve café owner 😀")
    status, body = baton.call("/detokenize", {"tokens": ids})
    assert status == 200 and body["prompt"] == "Once upon a time, a naïve café owner 😀"
    assert baton.metric("baton_generated_tokens_total") > 0
