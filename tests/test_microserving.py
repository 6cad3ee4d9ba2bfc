"""The three calls over plain HTTP, to real engines, from callers that do not always come back."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import workload
from deployment import AT_ONCE_S, DISAGG, PATIENCE_S, engine, eventually, router

SCRIPT = Path(__file__).parent.parent / "examples/three_calls.py"
STORY = " ".join(workload.SENTENCES)
CALLS = ["prep_recv", "remote_send", "start_generate"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(prefill, decode); the decode engine has met the beginning of the story before."""
    path = tmp_path_factory.mktemp("pair")
    with engine(path, "--threads", "1") as prefill, engine(path, "--threads", "1") as decode:
        opening = " ".join(workload.SENTENCES[:5])
        assert decode.call("/v1/completions", {"prompt": opening, "max_tokens": 1})[0] == 200
        yield prefill, decode


def call(node, name: str, body: dict, **fields) -> dict:
    status, answer = node.call(f"/microserving/{name}", body | fields)
    assert status == 200, answer
    return answer


def settled(node) -> dict:
    """Waits until nothing is held any more; every page has been recounted then."""

    def audited() -> dict | None:
        status, audited = node.call("/debug/audit")
        assert status == 200 and audited["agrees"], audited
        held = audited["pages_total"] - audited["pages_free"] - audited["pages_cached"]
        is_settled = held == 0 and audited["reservations"] == audited["reserved_pages"] == audited["exports"] == 0
        return audited if is_settled else None

    return eventually(audited, "all is given back", AT_ONCE_S)


def generated(decode, body: dict) -> list:
    """The choices, sent whole or put together from a stream."""
    if not body.get("stream"):
        return [choice["text"] for choice in call(decode, "start_generate", body)["choices"]]
    texts = [""]
    with httpx.stream(
        "POST", f"{decode.url}/microserving/start_generate", json=body, headers=decode.headers, timeout=60
    ) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] += choice["text"]
    return texts


def test_the_script_gives_the_text_of_a_single_engine(pair, baton):
    prefill, decode = pair
    env = os.environ | {"BATON_SECRET": decode.secret}
    script = [sys.executable, SCRIPT, prefill.url, decode.url, STORY]
    done = subprocess.run(script, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    status, plain = baton.call("/v1/completions", {"prompt": STORY, "max_tokens": 64, "temperature": 0})
    assert status == 200
    assert done.stdout == plain["choices"][0]["text"] + "\n"
    assert decode.metric("baton_handoffs_received_total") >= 1
    assert decode.metric("baton_kv_pages_received_total") >= 1
    lines = [line for line in SCRIPT.read_text().splitlines() if line.strip()]
    assert len(lines) <= 30, "the promise is thirty lines"


@pytest.mark.parametrize("order", ["one after the other", "generation first"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["text", "ids"])
def test_text_and_ids_whole_and_streamed_in_any_order(pair, baton, prompt, stream, order):
    prefill, decode = pair
    tokens = baton.tokens(STORY)
    # A prompt of its own each time, with a beginning that the decode engine knows.
    case = f"{prompt} {stream} {order}"
    tail = baton.tokens(f" Then {case}.")
    text = STORY + f" Then {case}."
    body = {
        "prompt": text if prompt == "text" else tokens + tail, "max_tokens": 24, "temperature": 1.0, "seed": 5,
        "user": case,
    }
    status, plain = baton.call("/v1/completions", body)
    assert status == 200, plain
    expected = [choice["text"] for choice in plain["choices"]]

    before = decode.metric("baton_prefill_tokens_total")
    reserved = call(decode, "prep_recv", body, end=-1)
    assert reserved["prefix_matched_length"] >= 64 and reserved["prefix_matched_length"] % 32 == 0
    send = body | {"begin": 0, "end": -1, "kv_addr_info": reserved["kv_append_metadata"], "recv_rank": 1}
    start = body | {"begin": -1, "stream": stream}
    if order == "one after the other":
        assert call(prefill, "remote_send", send) == {}
        assert generated(decode, start) == expected
    else:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(generated, decode, start)
            while decode.metric("baton_requests_waiting") == 0:
                time.sleep(0.005)
            assert call(prefill, "remote_send", send) == {}
            assert answer.result(60) == expected
    assert decode.metric("baton_prefill_tokens_total") == before + 1, "the decode engine computes the last token only"
    for node in pair:
        settled(node)


BAD = [
    ({"prompt": None}, CALLS, 400, "prompt"),
    ({"prompt": ["two", "prompts"]}, CALLS, 400, "prompt"),
    ({"prompt": [1, 10**9]}, CALLS, 400, "prompt"),
    ({"model": "another"}, CALLS, 404, "model"),
    ({"temperature": "hot"}, CALLS, 400, "temperature"),
    ({"user": ["me"]}, CALLS, 400, "user"),
    ({"user": None}, ["prep_recv"], 400, "user"),
    ({"end": None}, ["prep_recv", "remote_send"], 400, "end"),
    ({"end": 10**12}, ["prep_recv", "remote_send"], 400, "end"),
    ({"begin": "0"}, ["remote_send", "start_generate"], 400, "begin"),
    ({"begin": -(10**6)}, ["remote_send", "start_generate"], 400, "begin"),
    ({"recv_rank": "first"}, ["remote_send"], 400, "recv_rank"),
    ({"kv_addr_info": "AAAA"}, ["remote_send"], 400, "kv_addr_info"),
    ({"kv_addr_info": 7}, ["remote_send"], 400, "kv_addr_info"),
    ({"lease_ms": -1}, ["prep_recv"], 400, "lease_ms"),
]


@pytest.mark.parametrize("fields, calls, status, param", BAD, ids=[str(row[0]) for row in BAD])
def test_bad_input_is_refused_and_the_next_good_call_is_served(pair, fields, calls, status, param):
    prefill, decode = pair
    good = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "user": "bad", "begin": 0, "end": -1}
    spare = call(decode, "prep_recv", good, user="spare", lease_ms=100)["kv_append_metadata"]
    for name in calls:
        answered, error = decode.call(f"/microserving/{name}", good | {"kv_addr_info": spare} | fields)
        assert (answered, error["error"]["param"]) == (status, param), error
        assert set(error["error"]) == {"message", "type", "param", "code"}
    reserved = call(decode, "prep_recv", good)
    call(prefill, "remote_send", good, kv_addr_info=reserved["kv_append_metadata"])
    assert call(decode, "start_generate", good, begin=-1)["usage"]["completion_tokens"] == 4
    settled(decode)


ROUTES = [("POST", f"/microserving/{name}") for name in CALLS] + [
    ("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/debug/audit"), ("GET", "/nowhere"),
]


@pytest.mark.parametrize("method, path", ROUTES)
def test_nothing_is_served_without_the_secret(pair, method, path):
    _, decode = pair
    for offered in [None, "Bearer wrong", f"Basic {decode.secret}", f"Bearer {decode.secret}x"]:
        headers = {} if offered is None else {"authorization": offered}
        status, error = decode.call(path, b"{}" if method == "POST" else None, method, headers=headers)
        assert status == 401 and "secret" in error["error"]["message"], (offered, error)
    assert decode.call(path, b"{}" if method == "POST" else None, method)[0] != 401


def test_health_and_metrics_are_open_to_this_machine_only(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but loopback")
    with engine(tmp_path, host="0.0.0.0") as node:
        for path in ["/health", "/metrics"]:
            assert node.call(path, headers={})[0] == 200
        node.url = f"http://{address}:{node.port}"
        for path in ["/health", "/metrics"]:
            assert node.call(path, headers={})[0] == 401
            assert node.call(path)[0] == 200


def test_without_a_secret_on_loopback(tmp_path):
    with engine(tmp_path, "--no-engine-auth", secret=None) as node:
        assert node.call("/v1/completions", {"prompt": "Once", "max_tokens": 2})[0] == 200
        assert node.call("/debug/audit")[0] == 200


def test_a_caller_that_is_killed_after_prep_recv_gives_the_pages_back(pair):
    """No call gives it back: the lease runs out."""
    _, decode = pair
    settled(decode)
    before = decode.metric("baton_leases_expired_total")
    body = {"prompt": STORY + " The end.", "user": "doomed", "end": -1, "lease_ms": 8000}
    program = f"""
import time, urllib.request
url, body, headers = {decode.url + "/microserving/prep_recv"!r}, {json.dumps(body).encode()!r}, {decode.headers!r}
print(urllib.request.urlopen(urllib.request.Request(url, body, headers)).read().decode(), flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as caller:
        try:
            assert "kv_append_metadata" in caller.stdout.readline()
            assert decode.metric("baton_reservations") == 1
            assert decode.call("/debug/audit")[1]["agrees"]
        finally:
            os.kill(caller.pid, signal.SIGKILL)
    settled(decode)
    assert decode.metric("baton_reservations") == 0
    assert decode.metric("baton_leases_expired_total") == before + 1


def test_a_router_that_is_killed_during_a_hand_off_gives_the_pages_back(tmp_path):
    """The engine sees the end of the session: no lease has to run out."""
    with engine(tmp_path, "--threads", "1") as prefill, engine(tmp_path, "--threads", "1") as decode:
        engines = [*DISAGG, "--engine", f"{prefill.url}=prefill", "--engine", f"{decode.url}=decode"]
        # P is not given up while it is stopped.
        with router(tmp_path, *engines, "--hang-timeout", "600") as front, ThreadPoolExecutor(2) as pool:
            # P cannot answer remote_send: D has room reserved, and nothing arrives.
            os.kill(prefill.process.pid, signal.SIGSTOP)
            try:
                lost = [pool.submit(front.call, "/v1/completions", {"prompt": STORY + tail}) for tail in (" A", " B")]
                eventually(lambda: decode.metric("baton_reservations") >= 2, "room is reserved")
                assert decode.call("/debug/audit")[1]["reserved_pages"] > 0
                front.process.kill()
                audited = settled(decode)
                for answer in lost:
                    with pytest.raises(Exception, match="closed|reset|aborted|Remote end"):
                        answer.result(PATIENCE_S)
            finally:
                os.kill(prefill.process.pid, signal.SIGCONT)
        assert audited["reservations"] == audited["running"] == audited["waiting"] == 0
        assert decode.metric("baton_leases_expired_total") == decode.metric("baton_landing_timeouts_total") == 0
        settled(prefill)
        with router(tmp_path, *engines) as front:
            assert front.call("/v1/completions", {"prompt": STORY, "max_tokens": 4})[0] == 200


def test_a_moved_context_is_in_the_prefix_cache(pair, baton):
    prefill, decode = pair
    tokens = baton.tokens(STORY)[20:120]
    body = {"prompt": tokens, "user": "moved", "end": len(tokens), "lease_ms": 2000, "temperature": 0, "max_tokens": 8}
    reserved = call(decode, "prep_recv", body)
    assert reserved["prefix_matched_length"] == 0
    call(prefill, "remote_send", body, begin=0, kv_addr_info=reserved["kv_append_metadata"])
    settled(decode)
    status, answer = decode.call("/v1/completions", body)
    assert status == 200
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 96
    assert answer["choices"] == baton.call("/v1/completions", body)[1]["choices"]
