"""Prefill and decode on different engines: what travels, and what survives when one of them dies."""
import asyncio
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import workload
from deployment import AT_ONCE_S, DISAGG, eventually, serve, tries, when_busy

PREFILL_TOKENS, PAGES = "baton_prefill_tokens_total", "baton_kv_pages_received_total"
# Engines that are stopped here are to go on: test_hang.py has those that are given up.
NOT_HUNG = ["--hang-timeout", "600"]
SENT, SENT_EARLY = "baton_kv_bytes_sent_total", "baton_kv_bytes_sent_early_total"


def engine_metric(baton, name: str, engine: str) -> float:
    values = [s.value for s in baton.samples(name) if s.labels.get("engine") == engine]
    assert len(values) == 1, f"{name} of {engine}: {values}"
    return values[0]


def completion(baton, **fields) -> dict:
    status, answer = baton.call("/v1/completions", {"temperature": 0, "max_tokens": 8, "ignore_eos": True} | fields)
    assert status == 200, answer
    return answer


@pytest.fixture(scope="module")
def long_prompt(single):
    return workload.prompts(single.tokens)[-1]


@pytest.mark.parametrize("flags", [[], ["--fabric", "tcp"]], ids=["plain", "tcp"])
def test_the_decode_engine_computes_only_the_last_prompt_token(tmp_path, single, long_prompt, flags):
    expected = completion(single, prompt=long_prompt)["choices"]
    with serve(tmp_path, *DISAGG, *flags) as pair:
        status, chat = pair.call("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})
        assert status == 200 and chat["choices"][0]["message"]["content"], chat
        before, pages = (engine_metric(pair, name, "decode-0") for name in (PREFILL_TOKENS, PAGES))
        sent, early = (engine_metric(pair, name, "prefill-0") for name in (SENT, SENT_EARLY))
        assert completion(pair, prompt=long_prompt)["choices"] == expected
        assert engine_metric(pair, PREFILL_TOKENS, "decode-0") == before + 1
        assert engine_metric(pair, PAGES, "decode-0") - pages >= (len(long_prompt) - 1) // 32
        assert engine_metric(pair, "baton_kv_bytes_received_total", "decode-0") > 0
        assert engine_metric(pair, "baton_kv_checksum_failures_total", "decode-0") == 0
        sent = engine_metric(pair, SENT, "prefill-0") - sent
        early = engine_metric(pair, SENT_EARLY, "prefill-0") - early
        assert early >= 0.7 * sent, f"{early / sent:.0%} had landed before the last layer was computed"


def shard_metric(baton, name: str, engine: str) -> list[float]:
    """Of each shard, in their order."""
    mine = {int(s.labels["shard"]): s.value for s in baton.samples(name) if s.labels["engine"] == engine}
    return [mine[shard] for shard in range(len(mine))]


# The model has two KV heads: six shards keep each of them three times, and it travels once.
@pytest.mark.parametrize("prefill, decode", [(1, 2), (2, 1), (1, 6), (6, 2)])
@pytest.mark.parametrize("fabric", ["auto", "tcp"])
def test_engines_of_unequal_tensor_parallelism_hand_over(tmp_path, single, long_prompt, prefill, decode, fabric):
    expected = completion(single, prompt=long_prompt)["choices"]
    with serve(tmp_path, *DISAGG, "--endpoint-num-gpus", f"{prefill},{decode}", "--fabric", fabric) as pair:
        before = engine_metric(pair, PREFILL_TOKENS, "decode-0")
        assert completion(pair, prompt=long_prompt)["choices"] == expected
        assert engine_metric(pair, PREFILL_TOKENS, "decode-0") == before + 1
        received = engine_metric(pair, "baton_kv_bytes_received_total", "decode-0")
        each = received * max(decode, 2) / 2 / decode
        assert received > 0 and shard_metric(pair, "baton_kv_shard_bytes_received_total", "decode-0") == [each] * decode
        sent = shard_metric(pair, "baton_kv_shard_bytes_sent_total", "prefill-0")
        assert len(sent) == prefill and sum(sent) == received == engine_metric(pair, SENT, "prefill-0")


# (victim, killed once this counts, and this shows that it was in the middle of something)
VICTIMS = [
    ("prefill-0", "baton_handoffs_total", "baton_handoffs_failed_total"),
    ("decode-0", "baton_generated_tokens_total", "baton_resumed_total"),
]


@pytest.mark.parametrize("victim, sign, proof", VICTIMS, ids=[row[0] for row in VICTIMS])
def test_killing_an_engine_in_mid_stream_changes_nothing(tmp_path, single, victim, sign, proof):
    prompts = workload.prompts(single.tokens)
    requests = workload.bodies(prompts)[6:16]
    expected = [answer["choices"] for answer in workload.run(single.url, requests, concurrent=False)]
    for _ in tries():
        with serve(tmp_path, *DISAGG) as pair:
            (pid,) = [p for p in pair.engine_pids() if victim in pair.engine_name(p)]
            killer = when_busy(pair, sign, pid, signal.SIGKILL)
            answers = workload.run(pair.url, requests, concurrent=True)
            killer.join()
            assert [answer["choices"] for answer in answers] == expected
            eventually(lambda: pair.metric("baton_engine_up") == 2, "the engine came back")
            assert completion(pair, prompt=prompts[8])["usage"]["completion_tokens"] == 8
            if pair.metric(proof) > 0:
                return
    raise AssertionError("nothing was in flight on the engine that died, each time")


def test_a_prefill_engine_that_stops_and_comes_back_changes_nothing(tmp_path, single):
    """Stopped in mid-transfer, past the time D waits for KV; D's pages are others' by the time it goes on."""
    requests = workload.bodies(workload.prompts(single.tokens))[10:]
    expected = [answer["choices"] for answer in workload.run(single.url, requests, concurrent=False)]
    # In small steps, so that the stop comes before all is sent.
    flags = ["--kv-pages", "120", "--enable-prefix-cache=false", "--step-tokens", "32", *NOT_HUNG]
    with serve(tmp_path, *DISAGG, *flags) as pair:
        (pid,) = [p for p in pair.engine_pids() if "prefill-0" in pair.engine_name(p)]
        for _ in tries():
            stop = when_busy(pair, "baton_handoffs_total", pid, signal.SIGSTOP)
            answers = workload.run(pair.url, requests, concurrent=True)
            stop.join()
            assert [answer["choices"] for answer in answers] == expected
            if engine_metric(pair, "baton_landing_timeouts_total", "decode-0") > 0:
                break
            os.kill(pid, signal.SIGCONT)  # All had been sent: on a busy machine a signal may come late.
        else:
            raise AssertionError("the stop came too late each time")
        go_on = threading.Timer(1, os.kill, (pid, signal.SIGCONT))
        go_on.start()
        answers = workload.run(pair.url, requests, concurrent=True, arrival_seed=1)
        go_on.join()
        assert [answer["choices"] for answer in answers] == expected
        before = engine_metric(pair, "baton_handoffs_received_total", "decode-0")
        answers = workload.run(pair.url, requests, concurrent=True, arrival_seed=2)
        assert [answer["choices"] for answer in answers] == expected
        assert engine_metric(pair, "baton_handoffs_received_total", "decode-0") > before, "it takes part again"


@contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class SharedKv:
    """The memory that an engine shares: layer by layer, page by page."""

    def __init__(self, pid: int, pages: int, layers: int):
        regions = [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if "memfd:baton-kv" in os.readlink(fd)]
        self.region = max(regions, key=lambda fd: fd.stat().st_size)
        self.pages, self.block = pages, self.region.stat().st_size // (pages * layers)

    def read(self, layer: int, page: int) -> bytes:
        with self.region.open("rb", buffering=0) as memory:
            memory.seek((layer * self.pages + page) * self.block)
            return memory.read(self.block)

    def is_written(self, layer: int, page: int) -> bool:
        return any(self.read(layer, page))

    def flip_a_bit(self, layer: int, page: int):
        with self.region.open("r+b", buffering=0) as memory:
            # The exponent of a key: an engine that used it would answer differently.
            memory.seek((layer * self.pages + page) * self.block + 1)
            memory.write(bytes([self.read(layer, page)[1] ^ 0x40]))


def test_a_byte_flipped_in_shared_memory_is_found_and_computed_again(tmp_path, single, long_prompt):
    """After it was offered, before it is read; and it does not come back from the prefill engine's cache."""
    expected = completion(single, prompt=long_prompt)["choices"]
    pages, layers, last_page = 128, 6, (len(long_prompt) - 2) // 32
    for _ in tries():
        with serve(tmp_path, *DISAGG, "--kv-pages", str(pages), "--step-tokens", "32", *NOT_HUNG) as pair:
            pids = {name: p for p in pair.engine_pids() for name in ("prefill-0", "decode-0") if name in pair.engine_name(p)}
            kv = SharedKv(pids["prefill-0"], pages, layers)
            answers = []
            client = threading.Thread(target=lambda: answers.append(completion(pair, prompt=long_prompt)["choices"]))
            client.start()
            eventually(lambda: kv.is_written(0, 2), "the third page was begun")
            with stopped(pids["decode-0"]):
                eventually(lambda: kv.is_written(layers - 1, last_page), "the prompt was computed")
                time.sleep(1)  # the last offers are made
                block = kv.read(layers - 1, last_page - 1)
                taken = SharedKv(pids["decode-0"], pages, layers)
                was_read = any(taken.read(layers - 1, page) == block for page in range(pages))
                kv.flip_a_bit(layers - 1, last_page - 1)
            client.join()
            assert answers == [expected]
            if was_read:
                continue  # On a busy machine the stop may come late.
            assert engine_metric(pair, "baton_kv_checksum_failures_total", "decode-0") == 1
            assert engine_metric(pair, "baton_prefill_tokens_total", "decode-0") > 1, "it computed the damaged page itself"

            os.kill(pids["decode-0"], signal.SIGKILL)
            eventually(lambda: engine_metric(pair, "baton_engine_restarts_total", "decode-0") == 1, "the engine died")
            eventually(lambda: engine_metric(pair, "baton_engine_up", "decode-0") == 1, "the engine came back")
            assert completion(pair, prompt=long_prompt)["choices"] == expected
            assert engine_metric(pair, "baton_kv_pages_received_total", "decode-0") > 0, "its cache was empty"
            return
    raise AssertionError("it was read before it was damaged, each time")


def test_clients_that_hang_up_leave_nothing_behind(tmp_path, long_prompt):
    with serve(tmp_path, *DISAGG, "--enable-prefix-cache=false") as pair:

        async def hang_up(delay: float):
            async with httpx.AsyncClient() as client:
                body = {"prompt": long_prompt, "max_tokens": 400, "ignore_eos": True}
                try:
                    await asyncio.wait_for(client.post(f"{pair.url}/v1/completions", json=body), delay)
                except TimeoutError:
                    pass

        async def crowd():
            await asyncio.gather(*(hang_up(0.02 * i) for i in range(1, 16)))

        asyncio.run(crowd())

        def held():
            pages = sum(s.value for s in pair.samples("baton_kv_pages") if s.labels["state"] == "used")
            return pages + pair.metric("baton_reservations") + pair.metric("baton_exports")

        eventually(lambda: held() == 0, "pages, reservations and exports were given back", AT_ONCE_S)
