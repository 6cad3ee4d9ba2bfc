"""The promise: the same request gives the same bytes, whatever else is in the batch and however the engine is set up."""
from itertools import combinations, product

import pytest

import workload
from deployment import DISAGG, serve

# Any two values of any two columns stand together in some row: a test below checks that.
# tp: shards. chunk: tokens per step. tight: the longest request needs 49 of 52 pages, so that sequences are preempted.
WHOLE = {
    "engines": ("single", "round-robin"),
    "cache": ("on", "off"),
    "tp": ("1", "2"),
    "pool": ("roomy", "tight"),
    "chunk": ("32", "100", "2048"),
    "threads": ("1", "2"),
}
WHOLE_ROWS = [
    ("single", "on", "1", "roomy", "2048", "2"),
    ("single", "off", "1", "roomy", "32", "1"),
    ("single", "off", "1", "tight", "32", "2"),
    ("single", "off", "2", "roomy", "100", "2"),
    ("single", "off", "2", "roomy", "2048", "1"),
    ("round-robin", "on", "1", "tight", "100", "1"),
    ("round-robin", "on", "2", "roomy", "32", "2"),
    ("round-robin", "off", "2", "tight", "2048", "1"),
]

# balance: the share of a prompt that the decode engine computes. tp: of prefill and of decode engines.
APART = {
    "engines": ("1p1d", "2p2d"),
    "balance": ("0", "0.1", "0.5", "0.9"),
    "cache": ("on", "off"),
    "tp": ("1→1", "1→2", "2→1"),
    "fabric": ("shm", "tcp"),
    "pool": ("roomy", "tight"),
    "chunk": ("100", "512"),
}
APART_ROWS = [
    ("1p1d", "0", "off", "2→1", "tcp", "roomy", "512"),
    ("1p1d", "0.1", "on", "1→1", "tcp", "roomy", "512"),
    ("1p1d", "0.1", "on", "2→1", "tcp", "tight", "512"),
    ("1p1d", "0.5", "on", "1→1", "tcp", "roomy", "512"),
    ("1p1d", "0.5", "on", "1→2", "shm", "tight", "100"),
    ("1p1d", "0.9", "off", "1→1", "shm", "tight", "512"),
    ("1p1d", "0.9", "on", "2→1", "shm", "roomy", "100"),
    ("2p2d", "0", "on", "1→1", "tcp", "roomy", "100"),
    ("2p2d", "0", "off", "1→2", "shm", "tight", "512"),
    ("2p2d", "0.1", "off", "1→2", "shm", "roomy", "100"),
    ("2p2d", "0.5", "off", "2→1", "shm", "roomy", "100"),
    ("2p2d", "0.9", "off", "1→2", "tcp", "roomy", "512"),
]
# More shards than KV heads: each head is kept three times, and travels once.
REPLICATED = [("1p1d", "0", "on", "6→1", "shm", "roomy", "512"), ("1p1d", "0.1", "off", "2→6", "tcp", "roomy", "100")]


def whole_flags(engines, cache, tp, pool, chunk, threads) -> list[str]:
    number = {"single": 1, "round-robin": 2}[engines]
    flags = ["--prefill", "0", "--decode", str(number), "--threads", threads]
    return flags + ["--router-mode", "round-robin"] * (number > 1) + engine_flags([tp] * number, cache, pool, chunk)


def apart_flags(engines, balance, cache, tp, fabric, pool, chunk) -> list[str]:
    number = {"1p1d": 1, "2p2d": 2}[engines]
    shards = [degree for degree in tp.split("→") for _ in range(number)]
    flags = [*DISAGG, "--prefill", str(number), "--decode", str(number), "--pd-balance-factor", balance]
    return flags + ["--fabric", {"shm": "auto", "tcp": "tcp"}[fabric]] + engine_flags(shards, cache, pool, chunk)


def engine_flags(shards: list[str], cache: str, pool: str, chunk: str) -> list[str]:
    flags = [f"--enable-prefix-cache={str(cache == 'on').lower()}", "--step-tokens", chunk]
    return flags + ["--endpoint-num-gpus", ",".join(shards)] + ["--kv-pages", "52"] * (pool == "tight")


TABLE = [(columns, row) for columns, rows in ((WHOLE, WHOLE_ROWS), (APART, APART_ROWS + REPLICATED)) for row in rows]


def content(answer: dict) -> list[dict]:
    """What must not change: all but ids, times and what the cache saved."""
    assert answer["usage"]["completion_tokens"] == workload.OUTPUT_TOKENS * len(answer["choices"])
    return answer["choices"]


@pytest.fixture(scope="module")
def reference(single):
    """Requests, and their answers one at a time."""
    prompts = workload.prompts(single.tokens)
    assert [len(ids) for ids in prompts] == workload.LENGTHS
    requests = workload.bodies(prompts)
    answers = workload.run(single.url, requests, concurrent=False)
    return requests, [content(answer) for answer in answers]


@pytest.mark.parametrize("columns, row", TABLE, ids=["-".join(row).replace("→", "to") for _, row in TABLE])
def test_same_bytes_all_in_flight(tmp_path, reference, columns, row):
    requests, alone = reference
    flags = whole_flags(*row) if columns is WHOLE else apart_flags(*row)
    is_tight, has_cache, is_single = "tight" in row, "on" in row, "single" in row
    with serve(tmp_path, *flags) as baton:
        # Who is preempted depends on who arrives when, so it may take a few runs; a second one finds a warm cache.
        for run in range(6 if is_tight else 1 + has_cache):
            answers = workload.run(baton.url, requests, concurrent=True, arrival_seed=TABLE.index((columns, row)) + run)
            for index, answer in enumerate(answers):
                assert content(answer) == alone[index], f"prompt of {workload.LENGTHS[index]} tokens, run {run}"
            cached = sum(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers)
            assert has_cache or cached == 0
            if is_single and has_cache and not is_tight and run > 0:
                assert cached > sum(workload.LENGTHS) / 2, "a warm cache saves most of the work"
            if is_tight and baton.metric("baton_preemptions_total") > 0:
                break
        assert not is_tight or baton.metric("baton_preemptions_total") > 0, "the pools were meant to be too small"
        if columns is APART:
            received = baton.metric("baton_handoffs_received_total")
            assert received > 0, "nothing was handed over"


@pytest.mark.parametrize("prefill", ["0", "1"], ids=["single", "1p1d"])
def test_same_bytes_with_weights_in_12_bits(tmp_path, reference, prefill):
    requests, alone = reference
    with serve(tmp_path, "--prefill", prefill, "--decode", "1", "--weights", "compact") as baton:
        for index, answer in enumerate(workload.run(baton.url, requests, concurrent=True, arrival_seed=3)):
            assert content(answer) == alone[index], f"prompt of {workload.LENGTHS[index]} tokens"


@pytest.mark.parametrize("columns, rows", [(WHOLE, WHOLE_ROWS), (APART, APART_ROWS)], ids=["whole", "apart"])
def test_the_table_has_every_pair(columns, rows):
    for one, other in combinations(range(len(columns)), 2):
        names, values = list(columns), list(columns.values())
        there = {(row[one], row[other]) for row in rows}
        assert there == set(product(values[one], values[other])), f"{names[one]} and {names[other]}"


def test_streamed_bytes_equal_the_whole(tmp_path, reference, baton):
    """Streaming is another view of the same tokens."""
    import httpx
    import json

    requests, alone = reference
    for index in (4, 8, 12, 18):
        text, logprobs, finish = "", [], None
        with httpx.stream("POST", f"{baton.url}/v1/completions", json=requests[index] | {"stream": True}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    (choice,) = json.loads(line[6:])["choices"]
                    text += choice["text"]
                    logprobs += choice["logprobs"]["token_logprobs"] if choice.get("logprobs") else []
                    finish = choice["finish_reason"] or finish
        whole = alone[index][0]
        assert (text, logprobs, finish) == (whole["text"], whole["logprobs"]["token_logprobs"], whole["finish_reason"])


def test_choices_of_one_request_equal_across_batches(tmp_path, baton, reference):
    """n = 3 under load equals n = 3 alone; choices differ from each other."""
    requests, _ = reference
    body = dict(model="storyteller-11m", prompt="One day a fox", n=3, seed=5, temperature=1.0, max_tokens=40, logprobs=1)
    alone = workload.run(baton.url, [body], concurrent=False)[0]["choices"]
    crowd = workload.run(baton.url, [body] + requests[:8], concurrent=True)[0]["choices"]
    assert crowd == alone
    assert len({choice["text"] for choice in alone}) == 3
