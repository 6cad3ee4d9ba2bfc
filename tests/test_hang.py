"""Engines that hang without an end, and a router that is suspended itself: who is given up, and what clients see of it."""
import http.client
import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from deployment import DISAGG, engine, eventually, router, serve

USERS = 24
LIMIT_S = 3
LONGEST_STALL_S = 6
BACK_WITHIN_S = 15
# So that every prompt has to be handed over, each time.
NO_CACHE = "--enable-prefix-cache=false"


def body(user: int, tokens: int) -> dict:
    choose = random.Random(user)
    prompt = [choose.randrange(3, 4000) for _ in range(40 + 5 * user)]
    return {"prompt": prompt, "seed": user, "temperature": 0.8, "max_tokens": tokens, "ignore_eos": True, "stream": True}


def stream(address: str, request: dict) -> tuple[str, float]:
    """(text, longest time in which nothing came)"""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        last, longest, lines = time.monotonic(), 0.0, []
        connection.request("POST", "/v1/completions", json.dumps(request), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        for line in answer:
            if line.startswith(b"data: "):
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                lines.append(line[6:].strip())
        assert lines[-1] == b"[DONE]", lines[-1]
        events = [json.loads(line) for line in lines[:-1]]
        assert not [event for event in events if "error" in event], events[-1]
        return "".join(choice["text"] for event in events for choice in event["choices"]), longest
    finally:
        connection.close()


class Users:
    """Each sends the same request over and over until stopped; answers and stalls are kept."""

    def __init__(self, address: str, requests: list[dict]):
        self.address, self.requests = address, requests
        self.enough = threading.Event()
        self.answers: list[list[tuple[str, float]]] = [[] for _ in requests]
        self.pool = ThreadPoolExecutor(len(requests))
        self.running = [self.pool.submit(self.run, user) for user in range(len(requests))]

    def run(self, user: int):
        while not self.enough.is_set():
            self.answers[user].append(stream(self.address, self.requests[user]))

    def longest_stall(self) -> float:
        """Of the answers so far, once each user has two: what this machine's speed alone does."""
        eventually(lambda: all(len(answers) >= 2 for answers in self.answers), "each user has two answers")
        return max(stall for answers in self.answers for _, stall in answers)

    def finish(self, expected: list[str]) -> float:
        """Every byte is as expected. Gives the longest stall."""
        self.enough.set()
        [running.result() for running in self.running]
        self.pool.shutdown()
        for user, answers in enumerate(self.answers):
            assert answers and all(text == expected[user] for text, _ in answers), f"user {user}"
        return max(stall for answers in self.answers for _, stall in answers)


def quiet_run(address: str, requests: list[dict]) -> list[str]:
    with ThreadPoolExecutor(4) as pool:
        return [text for text, _ in pool.map(lambda request: stream(address, request), requests)]


def metric(baton, name: str, engine: str) -> float:
    (value,) = [s.value for s in baton.samples(f"baton_{name}") if s.labels["engine"] == engine]
    return value


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, request):
    flags = [*DISAGG, "--prefill", "2", "--decode", "2", "--threads", "1", "--fabric", request.param, NO_CACHE]
    with serve(tmp_path_factory.mktemp("fleet"), *flags) as deployment:
        requests = [body(user, tokens=100) for user in range(USERS)]
        yield deployment, requests, quiet_run(deployment.address, requests)


# (transport, victim, what it does for others)
VICTIMS = [
    ("auto", "decode-0", "generated_tokens_total"),
    ("auto", "prefill-1", "handoffs_sent_total"),
    ("tcp", "prefill-1", "handoffs_sent_total"),
]


@pytest.mark.parametrize("fleet, victim, work", VICTIMS, ids=["-".join(row[:2]) for row in VICTIMS], indirect=["fleet"])
def test_an_engine_that_hangs_is_replaced_and_no_stream_waits_for_it(fleet, victim, work):
    baton, requests, expected = fleet
    hangs = baton.metric("baton_engine_hangs_total")
    users = Users(baton.address, requests)
    usual = users.longest_stall()
    before = metric(baton, work, victim)
    eventually(lambda: metric(baton, work, victim) > before, "it is in use")
    (pid,) = [pid for pid in baton.engine_pids() if victim in baton.engine_name(pid)]
    stopped_at = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: metric(baton, "engine_up", victim) == 0, "it is given up", LONGEST_STALL_S + usual)
    assert metric(baton, "engine_restarts_total", victim) == 0, "there is time to come back by itself"
    # A replacement has counted nothing yet, and is ready before it is up.
    eventually(lambda: metric(baton, "engine_restarts_total", victim) == 1, "it is killed")
    eventually(lambda: metric(baton, "engine_up", victim) == 1, "it is back", BACK_WITHIN_S + usual)
    back_after = time.monotonic() - stopped_at
    eventually(lambda: metric(baton, work, victim) > 1, "it is in use again")
    stall = users.finish(expected)
    assert back_after <= BACK_WITHIN_S + usual, f"{back_after:.1f} s, stalls of {usual:.1f} s before"
    assert LIMIT_S / 2 < stall <= LONGEST_STALL_S + usual, f"{stall:.1f} s, {usual:.1f} s before"
    assert baton.metric("baton_engine_hangs_total") == hangs + 1, "no other engine was given up"
    assert "killed" in baton.log.read_text()


def test_an_attached_engine_is_taken_back(tmp_path):
    """It is not killed, and has its requests' old attempts still to do when it goes on."""
    mock = ["--mock=decode-ms=20", NO_CACHE]
    with ExitStack() as stack:
        stays, hangs = (stack.enter_context(engine(tmp_path, *mock, model="storyteller-11m")) for _ in range(2))
        flags = ["--engine", stays.address, "--engine", hangs.address, "--router-mode", "round-robin"]
        baton = stack.enter_context(router(tmp_path, *flags, "--hang-timeout", "1"))
        requests = [body(user, tokens=100) for user in range(8)]
        expected = quiet_run(baton.address, requests)
        users = Users(baton.address, requests)
        time.sleep(0.5)
        with stopped(hangs.process.pid):
            eventually(lambda: metric(baton, "engine_up", "mixed-1") == 0, "it is given up")
            # Longer than an engine of the router's own would live.
            time.sleep(2.5)
        eventually(lambda: metric(baton, "engine_up", "mixed-1") == 1, "it is taken back")
        before = metric(baton, "generated_tokens_total", "mixed-1")
        eventually(lambda: metric(baton, "generated_tokens_total", "mixed-1") > before + 200, "it is in use again")
        users.finish(expected)
        assert baton.metric("baton_engine_restarts_total") == 0
        assert metric(baton, "engine_hangs_total", "mixed-1") == 1


def test_a_slow_engine_is_not_given_up(tmp_path):
    """Each of its steps takes longer than an engine may be silent, and longer than one that hangs may live."""
    with serve(tmp_path, "--mock", "decode-ms=10000", "--prefill", "0") as baton:
        began = time.monotonic()
        status, answer = baton.call("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True})
        assert status == 200 and answer["usage"]["completion_tokens"] == 2, answer
        assert time.monotonic() - began > 10
        assert baton.metric("baton_engine_hangs_total") == 0 and baton.metric("baton_engine_restarts_total") == 0
        assert baton.metric("baton_resumed_total") == 0


def test_a_router_that_is_suspended_gives_no_engine_up(tmp_path):
    mocks = [*DISAGG, "--mock", "decode-ms=20", "--prefill", "1", "--decode", "2", NO_CACHE]
    with serve(tmp_path, *mocks) as baton:
        requests = [body(user, tokens=100) for user in range(8)]
        expected = quiet_run(baton.address, requests)
        users = Users(baton.address, requests)
        time.sleep(0.5)
        with stopped(baton.process.pid):
            # Engines fall idle meanwhile, and are not heard.
            time.sleep(2 * LIMIT_S + 1)
        assert users.finish(expected) > 2 * LIMIT_S
        assert baton.metric("baton_engine_hangs_total") == 0 and baton.metric("baton_engine_restarts_total") == 0
        assert baton.metric("baton_resumed_total") == 0
        assert "was suspended" in baton.log.read_text()


@contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
