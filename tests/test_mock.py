"""Engines without a model: their time, their faults, and other projects' protocols as their routers speak them."""
import json
import random
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from deployment import BINARY, DISAGG, PATIENCE_S, eventually, free_port, serve, tries

REMOTE_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


class Engine:
    def __init__(self, process: subprocess.Popen, log: Path):
        self.process, self.log = process, log
        self.url = f"http://127.0.0.1:{self.port('listening on')}"
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def port(self, what: str) -> int:
        def match() -> re.Match | None:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(rf"{what} \S+:(\d+)", self.log.read_text())

        return int(eventually(match, f"it logs '{what}'")[1])

    def post(self, path: str, body: dict, **headers) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def answer(self, body: dict, path="/v1/completions") -> dict:
        response = self.post(path, {"model": "mock"} | body)
        assert response.status_code == 200, response.text
        return response.json()

    def events(self, body: dict, path="/v1/completions"):
        """(seconds since the request was sent, parsed event)."""
        started = time.monotonic()
        with self.http.stream("POST", path, json={"model": "mock", "stream": True} | body) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield time.monotonic() - started, json.loads(line.removeprefix("data: "))

    def count(self, name: str) -> int:
        return int(re.search(rf"^{name} (\d+)$", self.http.get("/metrics").text, re.M)[1])


@contextmanager
def running(tmp_path: Path, *command: str):
    log = tmp_path / f"{command[0]}-{random.getrandbits(32)}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([BINARY, *command], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process, log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{command[0]} did not stop:\n{log.read_text()}") from None


@contextmanager
def engine(tmp_path: Path, *flags: str):
    with running(tmp_path, "engine", *flags) as (process, log):
        yield Engine(process, log)


@contextmanager
def router(tmp_path: Path, *flags: str):
    port = free_port()
    with running(tmp_path, "router", "--router-port", str(port), *flags) as (process, log):
        gateway = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return gateway.get("/ready").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_ready, "the router is ready")
        yield gateway


@pytest.fixture
def start(tmp_path):
    with ExitStack() as started:

        def start(dialect: str, mock: str = "", role: str | None = None) -> Engine:
            flags = [f"--mock={mock}", "--dialect", dialect, *(["--mock-role", role] if role else [])]
            return started.enter_context(engine(tmp_path, *flags, "--bootstrap-port", "0"))

        yield start


def ids(seed: int, count: int) -> list[int]:
    choose = random.Random(seed)
    return [choose.randrange(3, 4000) for _ in range(count)]


# --- Baton's own protocol

SECRET = "of-the-mocks"


@pytest.fixture
def native(tmp_path, monkeypatch):
    """Starts mocks that speak Baton's own protocol, and routers over them."""
    monkeypatch.setenv("BATON_SECRET", SECRET)
    with ExitStack() as started:

        def mock(options: str = "", *flags: str) -> Engine:
            return started.enter_context(engine(tmp_path, f"--mock={options}", *flags))

        def over(*engines: tuple[Engine, str]) -> httpx.Client:
            flags = DISAGG if any(role == "prefill" for _, role in engines) else []
            flags = flags + [f"--engine={mock.url}={role}" for mock, role in engines]
            return started.enter_context(router(tmp_path, *flags))

        yield mock, over


def texts(answer: dict) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def completion(gateway: httpx.Client, **fields) -> dict:
    body = {"model": "mock", "temperature": 0, "max_tokens": 12} | fields
    response = gateway.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def total(gateway: httpx.Client, name: str) -> float:
    """Over all engines."""
    lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", gateway.get("/metrics").text, re.M)
    assert lines, f"no metric {name}"
    return sum(map(float, lines))


def test_an_engine_answers_by_itself(native):
    mock, _ = native
    alone = mock("prefill-ms=200,decode-ms=20")
    alone.http.headers["authorization"] = f"Bearer {SECRET}"

    def stream(index: int) -> list[float]:
        return [at for at, _ in alone.events({"prompt": ids(index, 300), "max_tokens": 20})]

    check_times(stream, 0.2, 0.02, 20)
    assert texts(alone.answer({"prompt": "Once upon a time", "max_tokens": 9}))[0].strip()
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    assert alone.answer(chat, "/v1/chat/completions")["usage"]["completion_tokens"] == 9
    scored = alone.answer({"prompt": ids(2, 20), "max_tokens": 3, "logprobs": 2})["choices"][0]["logprobs"]
    assert len(scored["token_logprobs"]) == 3 and all(-1 < logprob < 0 for logprob in scored["token_logprobs"])


def test_a_pair_hands_over_and_says_what_one_engine_says(native):
    mock, over = native
    whole = over((mock(), "mixed"))
    pair = over((mock("prefill-ms=100"), "prefill"), (mock("decode-ms=10"), "decode"))
    for prompt in ["Once upon a time", ids(3, 40), ids(4, 3000)]:
        assert texts(completion(pair, prompt=prompt)) == texts(completion(whole, prompt=prompt))
    assert total(pair, "baton_handoffs_received_total") == 3 and total(pair, "baton_kv_checksum_failures_total") == 0

    def stream(index: int) -> list[float]:
        started = time.monotonic()
        completion(pair, prompt=ids(50 + index, 1000), max_tokens=1)
        return [time.monotonic() - started]

    # Prefill on one engine, the last prompt token on the other.
    check_times(stream, 0.11, 0.01, 1)


def test_timings_tell_the_engines_apart(native):
    """Also while the prefill engine is busy with the next prompt."""
    mock, over = native
    pair = over((mock("prefill-ms=200"), "prefill"), (mock("decode-ms=10"), "decode"))
    for index in tries():
        with ThreadPoolExecutor(3) as pool:
            # A step holds 512 tokens: all of a prompt but its last, which the decode engine computes.
            seeds = range(1000 + 3 * index, 1003 + 3 * index)
            answers = pool.map(lambda seed: completion(pair, prompt=ids(seed, 513), max_tokens=5), seeds)
            timings = sorted((answer["timings"] for answer in answers), key=lambda times: times["queue_ms"])
        # Times are from event to event: one that is seen late takes from the next.
        if all(
            waited * 0.9 <= times["queue_ms"] <= waited + 150
            and 190 <= times["prefill_ms"] <= 350
            and times["handoff_ms"] <= 100
            and 35 <= times["decode_ms"] <= 150
            for waited, times in zip([0, 200, 400], timings)
        ):
            return
    raise AssertionError(f"at last {timings}")


def test_streams_outlive_failing_engines(native):
    mock, over = native
    whole = over((mock(), "mixed"))
    options = ["error-rate=0.3,error-after-tokens=3,seed=1", "crash-after-tokens=40", ""]
    shaky = over(*((mock(option), "mixed") for option in options))
    for seed in range(20):
        prompt = ids(100 + seed, 50)
        assert texts(completion(shaky, prompt=prompt)) == texts(completion(whole, prompt=prompt))
    assert total(shaky, "baton_resumed_total") > 1


def test_serve_runs_fleets_of_mocks(tmp_path):
    mocks = ["--model-lib", "mock", "--mock", "prefill-ms=100,decode-ms=10"]
    with serve(tmp_path, *DISAGG, *mocks, "--prefill", "2", "--decode", "2") as fleet:

        def answer(index: int) -> list[float]:
            body = {"prompt": ids(60 + index, 5000), "max_tokens": 11, "model": "storyteller-11m"}
            started = time.monotonic()
            status, answered = fleet.call("/v1/completions", body)
            assert status == 200 and answered["usage"]["completion_tokens"] == 11, answered
            return [time.monotonic() - started]

        check_times(answer, 0.21, 0.01, 1)


# --- time


def check_times(stream, first: float, every: float, tokens: int):
    """`stream(try)` gives each token's time. None is early, and at its best none is late."""
    best = [float("inf")] * tokens
    due = [first + index * every for index in range(tokens)]
    for index in tries():
        times = stream(index)
        assert len(times) == tokens
        assert all(at >= planned - 0.002 for at, planned in zip(times, due)), f"{times} for {due}"
        best = [min(pair) for pair in zip(best, times)]
        if all(at < planned + 0.04 for at, planned in zip(best, due)):
            return
    raise AssertionError(f"at best {best}, due {due}")


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
@pytest.mark.parametrize("path, prompt", [
    ("/v1/completions", {"prompt": "Once upon a time"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}]}),
])
def test_two_hundred_ms_to_the_first_token_and_twenty_between(start, dialect, path, prompt):
    mock = start(dialect, "prefill-ms=200,decode-ms=20")

    def stream(_) -> list[float]:
        choices = [(at, event["choices"][0]) for at, event in mock.events(prompt | {"max_tokens": 20}, path)]
        assert choices[-1][1]["finish_reason"] == "length"
        return [at for at, choice in choices if choice.get("text") or choice.get("delta", {}).get("content")]

    check_times(stream, 0.2, 0.02, 20)


# --- vLLM


def two_legs(prefill: Engine, decode: Engine, body: dict, request_id="r-1", path="/v1/completions"):
    """As public routers send them. (the object of the first leg, the answer to the second)"""
    first = body | {"model": "mock", "stream": False, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    response = prefill.post(path, first, **{"x-request-id": request_id})
    assert response.status_code == 200, response.text
    params = response.json()["kv_transfer_params"]
    return params, decode.answer(body | {"kv_transfer_params": params}, path)


def test_vllm_legs_give_what_one_engine_gives(start):
    prefill, decode, alone = start("vllm", role="prefill"), start("vllm", role="decode"), start("vllm")
    for seed, prompt in enumerate(["Once upon a time", ids(1, 700), ids(2, 1)]):
        body = {"prompt": prompt, "max_tokens": 12}
        params, answer = two_legs(prefill, decode, body, f"r-{seed}")
        whole = alone.answer(body)
        assert answer["choices"] == whole["choices"]
        assert answer["usage"] == whole["usage"] and answer["usage"]["completion_tokens"] == 12
        assert params["do_remote_prefill"] and params["remote_request_id"].startswith(f"r-{seed}-")
        assert params["remote_num_tokens"] == whole["usage"]["prompt_tokens"]
    assert prefill.count("mock_kv_taken_total") == 3
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    path = "/v1/chat/completions"
    assert two_legs(prefill, decode, chat, path=path)[1]["choices"] == alone.answer(chat, path)["choices"]


def test_vllm_kv_is_good_for_one_request_of_its_prompt(start):
    prefill, decode = start("vllm"), start("vllm")
    body = {"prompt": ids(3, 100), "max_tokens": 3}
    params, _ = two_legs(prefill, decode, body)
    again = decode.post("/v1/completions", {"model": "mock"} | body | {"kv_transfer_params": params})
    assert again.status_code == 500 and "fetched before" in again.json()["error"]["message"]
    assert prefill.count("mock_kv_reused_total") == 1 and decode.count("mock_kv_load_failures_total") == 1

    first = body | {"max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    params = prefill.answer(first)["kv_transfer_params"]
    other = decode.post("/v1/completions", body | {"prompt": ids(4, 100), "kv_transfer_params": params})
    assert other.status_code == 500 and "another prompt" in other.text
    for field in ["remote_engine_id", "remote_request_id", "remote_block_ids", "remote_host", "remote_port"]:
        partial = decode.post("/v1/completions", body | {"kv_transfer_params": params | {field: None}})
        assert partial.status_code == 400 and field in partial.text
    wrong = params | {"remote_request_id": "unknown"}
    assert decode.post("/v1/completions", body | {"kv_transfer_params": wrong}).status_code == 500
    assert decode.answer(body | {"kv_transfer_params": params})["usage"]["completion_tokens"] == 3


def test_vllm_kv_expires_and_dies_with_its_engine(start):
    prefill, decode = start("vllm", "handoff-timeout-ms=100"), start("vllm", "handoff-timeout-ms=600000")
    body = {"prompt": ids(5, 50), "max_tokens": 3}
    first = body | {"max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    params = prefill.answer(first)["kv_transfer_params"]
    time.sleep(0.15)
    late = decode.post("/v1/completions", body | {"kv_transfer_params": params})
    assert late.status_code == 500 and "in time" in late.text
    params = prefill.answer(first)["kv_transfer_params"]
    prefill.process.kill()
    prefill.process.wait()
    started = time.monotonic()
    gone = decode.post("/v1/completions", body | {"kv_transfer_params": params})
    assert gone.status_code == 500 and "is lost" in gone.text
    assert time.monotonic() - started < PATIENCE_S


def test_vllm_streams_can_be_resumed_by_their_token_ids(start):
    prefill, decode, alone = start("vllm"), start("vllm"), start("vllm")
    body = {"prompt": "Once upon a time", "max_tokens": 30, "return_token_ids": True}
    events = [event["choices"][0] for _, event in alone.events(body)]
    prompt = events[0]["prompt_token_ids"]
    tokens = [event["token_ids"][0] for event in events]
    assert len(prompt) == alone.answer(body)["usage"]["prompt_tokens"] and len(tokens) == 30
    rest = {"prompt": prompt + tokens[:11], "max_tokens": 19, "return_token_ids": True}
    assert two_legs(prefill, decode, rest)[1]["choices"][0]["token_ids"] == tokens[11:]


def test_vllm_says_what_a_router_asks(start):
    mock = start("vllm")
    assert mock.http.get("/health").status_code == 200
    (card,) = mock.http.get("/v1/models").json()["data"]
    assert card["id"] == "mock"
    body = {"prompt": "a", "max_tokens": 2, "stream_options": {"include_usage": True}}
    events = [event for _, event in mock.events(body)]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 2
    bad = [b"{", b'{"prompt": []}', b'{"prompt": [9999999]}']
    for body, status in [*((body, 400) for body in bad), (b'{"model": "x", "prompt": "a"}', 404)]:
        response = mock.http.post("/v1/completions", content=body)
        assert response.status_code == status and response.json()["error"]["code"] == status
    two = mock.answer({"prompt": [ids(1, 5), ids(2, 5)], "n": 2, "max_tokens": 4})["choices"]
    assert [choice["index"] for choice in two] == [0, 1, 2, 3] and len({choice["text"] for choice in two}) == 4


# --- SGLang


def both_legs(prefill: Engine, decode: Engine, body: dict, room, path="/v1/completions", delay_s=0.0):
    """The same body to both at the same time; `delay_s` > 0 sends the decode leg later, < 0 the prefill leg."""
    port = prefill.port("bootstrap on")
    body = body | {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": room}

    def leg(engine: Engine, after_s: float) -> httpx.Response:
        time.sleep(max(after_s, 0))
        return engine.post(path, body)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(leg, [prefill, decode], [-delay_s, delay_s]))


@pytest.mark.parametrize("delay_s", [-0.2, 0.0, 0.2])
def test_sglang_legs_meet_and_give_what_one_engine_gives(start, delay_s):
    prefill, decode, alone = start("sglang", role="prefill"), start("sglang", role="decode"), start("sglang")
    completion = {"prompt": ids(6, 300), "max_tokens": 9}
    first, second = both_legs(prefill, decode, completion, 2**63 - 1, delay_s=delay_s)
    assert first.status_code == second.status_code == 200, (first.text, second.text)
    assert second.json()["choices"] == alone.answer(completion)["choices"]
    generate = {"text": ["One", "Two"], "sampling_params": {"max_new_tokens": 4}}
    _, batch = both_legs(prefill, decode, generate, [1, 2], "/generate", delay_s)
    whole = alone.answer(generate, "/generate")
    assert [a["output_ids"] for a in batch.json()] == [a["output_ids"] for a in whole] and len(whole) == 2
    assert prefill.count("mock_kv_taken_total") == 3


def test_sglang_rooms_are_used_once_and_no_request_waits_for_ever(start):
    prefill, decode = start("sglang", role="prefill"), start("sglang", role="decode")
    body = {"prompt": ids(7, 40), "max_tokens": 3}
    assert [leg.status_code for leg in both_legs(prefill, decode, body, 5)] == [200, 200]
    assert [leg.status_code for leg in both_legs(prefill, decode, body, 5)] == [400, 400]
    assert prefill.count("mock_kv_reused_total") == 2

    prefill = start("sglang", "handoff-timeout-ms=500", role="prefill")
    decode = start("sglang", "handoff-timeout-ms=500", role="decode")
    port = prefill.port("bootstrap on")
    alone = body | {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": 6}
    started = time.monotonic()
    assert prefill.post("/v1/completions", alone).status_code == 500
    assert decode.post("/v1/completions", alone | {"bootstrap_room": 7}).status_code == 500
    assert 0.99 < time.monotonic() - started < 25, "without the option it is 30 s each"
    assert decode.post("/v1/completions", body).status_code == 400
    bootstrap = httpx.Client(base_url=f"http://127.0.0.1:{port}")
    assert bootstrap.get("/health").status_code == 200
    assert bootstrap.get("/route?prefill_dp_rank=0&target_tp_rank=0").json()["rank_port"] > 0
    assert bootstrap.get("/route").status_code == 400


def test_sglang_streams_from_the_decode_engine(start):
    prefill = start("sglang", "prefill-ms=200", role="prefill")
    decode = start("sglang", "decode-ms=20", role="decode")
    port = prefill.port("bootstrap on")
    body = {"prompt": ids(8, 40), "max_tokens": 10, "bootstrap_host": "127.0.0.1", "bootstrap_port": port}

    def stream(room: int) -> list[float]:
        leg = threading.Thread(target=prefill.post, args=("/v1/completions", body | {"bootstrap_room": room}))
        leg.start()
        times = [at for at, _ in decode.events(body | {"bootstrap_room": room})]
        leg.join()
        return times

    check_times(stream, 0.2, 0.02, 10)


# --- faults


def test_errors_come_at_their_rate_again_with_the_same_seed(start):
    def statuses(seed: int) -> list[int]:
        mock = start("vllm", f"error-rate=0.2,seed={seed}")
        return [mock.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code for _ in range(200)]

    first = statuses(1)
    assert set(first) == {200, 500} and 20 <= first.count(500) <= 60
    assert statuses(1) == first != statuses(2)


def test_a_failing_stream_says_so(start):
    mock = start("vllm", "error-rate=1,error-after-tokens=3")
    events = [event for _, event in mock.events({"prompt": "a", "max_tokens": 8})]
    assert len(events) == 4 and events[3]["error"]["code"] == 500


def test_a_crash_ends_the_process_in_mid_stream(start):
    mock = start("vllm", "decode-ms=5,crash-after-tokens=4")
    seen = []
    with pytest.raises(httpx.RemoteProtocolError):
        for _, event in mock.events({"prompt": "a", "max_tokens": 8}):
            seen.append(event)
    # What was sent last may die with it.
    assert 1 <= len(seen) <= 4
    assert mock.process.wait(PATIENCE_S) == 1
