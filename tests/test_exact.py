"""The promise: the same request gives the same bytes, whatever else is in the batch and however the engine is set up."""
import pytest

import workload
from deployment import serve

# (name, flags, runs): `runs` > 1 repeats the workload on the warm engine.
TABLE = [
    ("chunk-32", ["--prefill", "0", "--step-tokens", "32", "--enable-prefix-cache=false"], 1),
    ("chunk-100", ["--prefill", "0", "--step-tokens", "100", "--enable-prefix-cache=false"], 1),
    ("chunk-2048", ["--prefill", "0", "--step-tokens", "2048", "--enable-prefix-cache=false"], 1),
    ("threads-1", ["--prefill", "0", "--threads", "1", "--enable-prefix-cache=false"], 1),
    ("threads-2", ["--prefill", "0", "--threads", "2", "--enable-prefix-cache=false"], 1),
    ("cache-cold-warm", ["--prefill", "0", "--enable-prefix-cache=true"], 2),
    ("cache-chunk-100-threads-1", ["--prefill", "0", "--enable-prefix-cache=true", "--step-tokens", "100", "--threads", "1"], 2),
    ("two-engines", ["--prefill", "0", "--decode", "2", "--enable-prefix-cache=true"], 2),
    ("round-robin-2", ["--decode", "2", "--router-mode", "round-robin", "--enable-prefix-cache=false"], 1),
    ("1p1d", [], 2),
    ("1p1d-tcp-no-cache", ["--fabric", "tcp", "--enable-prefix-cache=false"], 1),
    ("2p2d-chunk-100", ["--prefill", "2", "--decode", "2", "--step-tokens", "100"], 1),
    ("2p1d-balance-0.1", ["--prefill", "2", "--pd-balance-factor", "0.1"], 1),
    ("1p2d-balance-0.5-tcp", ["--decode", "2", "--pd-balance-factor", "0.5", "--fabric", "tcp"], 1),
    ("1p1d-balance-0.9-no-cache", ["--pd-balance-factor", "0.9", "--enable-prefix-cache=false"], 1),
    ("tp-2-threads-2", ["--prefill", "0", "--tp", "2", "--threads", "2", "--enable-prefix-cache=false"], 1),
    # More shards than KV heads: each head is kept three times and travels once.
    ("1p1d-tp-6", ["--tp", "6"], 1),
    ("1p1d-small-pools", ["--kv-pages", "52", "--step-tokens", "100"], 1),
    # The longest request needs 49 pages; whether others are preempted depends on who arrives when, so it may take a few runs.
    ("preemption", ["--prefill", "0", "--kv-pages", "52", "--enable-prefix-cache=false"], 5),
    ("preemption-cache", ["--prefill", "0", "--kv-pages", "52", "--enable-prefix-cache=true", "--step-tokens", "100"], 5),
]


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


@pytest.mark.parametrize("name, flags, runs", TABLE, ids=[row[0] for row in TABLE])
def test_same_bytes_all_in_flight(tmp_path, reference, name, flags, runs):
    requests, alone = reference
    with serve(tmp_path, *flags) as baton:
        for round_number in range(runs):
            answers = workload.run(baton.url, requests, concurrent=True, arrival_seed=len(name) + round_number)
            for index, answer in enumerate(answers):
                assert content(answer) == alone[index], f"prompt of {workload.LENGTHS[index]} tokens, run {round_number}"
            cached = sum(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers)
            if "--enable-prefix-cache=false" in flags:
                assert cached == 0
            elif round_number > 0 and name.startswith("cache"):
                assert cached > sum(workload.LENGTHS) / 2, "a warm cache saves most of the work"
            if name.startswith("preemption") and baton.metric("baton_preemptions_total") > 0:
                break
        if name.startswith("preemption"):
            assert baton.metric("baton_preemptions_total") > 0, "the pool was meant to be too small"


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
