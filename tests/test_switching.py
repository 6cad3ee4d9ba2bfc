"""Strategies, parameters, roles and engines change on a server under load: no request fails, and every byte is that of a
quiet run."""
import asyncio
import itertools
import os
import random
import re
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager

import httpx
import pytest

import workload
from deployment import BINARY, engine, eventually, serve

SECRET = "of-the-tests"
CLIENTS = 8
ENOUGH = 100
# Prompts meet engines that hold a part of them, all, or nothing.
ENGINES = ["--threads", "1", "--kv-pages", "96"]
STRATEGIES = [
    ("auto", {"ttft_ms": 0, "tpot_ms": 0, "move_roles": 1}),
    ("disagg", {"pd_balance_factor": 0}),
    ("round-robin", {}),
    ("disagg", {"pd_balance_factor": 0.5}),
    ("least-loaded", {}),
    ("disagg", {"pd_balance_factor": 0.1}),
    ("prefix-aware", {"load_slack": 2}),
    ("disagg", {"pd_balance_factor": 0.9}),
    ("session-affinity", {"load_slack": 4}),
    ("context-migration", {"load_slack": 0}),
]


@pytest.fixture(scope="module")
def story(single):
    """Greedy requests with prompts that share beginnings, and the answers of one engine, one at a time."""
    rng = random.Random(26)
    prompts: list[list[int]] = []
    for index in range(48):
        ids = prompts[-1][:64] if index % 3 == 2 else []
        ids = ids + single.tokens(" ".join(rng.sample(workload.SENTENCES, 6)))
        prompts.append((ids * 3)[: rng.randint(40, 220)])
    common: dict = dict(model="storyteller-11m", max_tokens=12, ignore_eos=True, logprobs=2, temperature=0.0)
    requests = [common | dict(prompt=ids, user=f"user {at % 6}") for at, ids in enumerate(prompts)]
    return requests, [answer["choices"] for answer in workload.run(single.url, requests, concurrent=False)]


class Load:
    """Clients that send one request after the other, and compare every answer."""

    def __init__(self, url: str, story):
        self.url, (self.requests, self.expected) = url, story
        self.served: list[tuple[float, float]] = []
        self.wrong: list[str] = []
        self.stopped = False

    async def client(self, http: httpx.AsyncClient, first: int):
        for index in itertools.count(first, 7):
            if self.stopped or self.wrong:
                return
            at, began = index % len(self.requests), time.monotonic()
            answer = await http.post(f"{self.url}/v1/completions", json=self.requests[at])
            if answer.status_code != 200:
                self.wrong.append(answer.text)
            elif answer.json()["choices"] != self.expected[at]:
                self.wrong.append(f"prompt {at}: {answer.json()['choices']}, not {self.expected[at]}")
            self.served.append((began, time.monotonic()))

    async def run(self):
        async with httpx.AsyncClient(timeout=120) as http:
            await asyncio.gather(*(self.client(http, first) for first in range(CLIENTS)))

    def within(self, begin: float, end: float) -> int:
        """Requests that were sent and answered in this time."""
        return sum(begin <= sent and answered <= end for sent, answered in list(self.served))

    def check(self):
        assert not self.wrong, self.wrong[0]


@contextmanager
def under_load(baton, story):
    load = Load(baton.url, story)
    thread = threading.Thread(target=lambda: asyncio.run(load.run()))
    thread.start()
    try:
        yield load
    finally:
        load.stopped = True
        thread.join()
    load.check()
    assert baton.metric("baton_resumed_total") == 0, "a change made a request begin again"


def admin(baton, method: str, path: str, body=None):
    status, answer = baton.call(f"/admin/{path}", body, method)
    assert status < 300, answer
    return answer


def command(baton, *arguments: str, secret: str | None = SECRET) -> str:
    ended = attempt(baton, *arguments, secret=secret)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def attempt(baton, *arguments: str, secret: str | None = SECRET) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name != "BATON_SECRET"}
    env |= {} if secret is None else {"BATON_SECRET": secret}
    whole = [BINARY, "router", *arguments, "--url", baton.url]
    return subprocess.run(whole, capture_output=True, text=True, timeout=60, env=env)


def set_strategy(baton, name: str, parameters: dict, by_command: bool):
    if by_command:
        flags = [text for key, value in parameters.items() for text in (f"--{key.replace('_', '-')}", str(value))]
        assert f"routed {name}" in command(baton, "set", name, *flags)
    else:
        now = admin(baton, "PUT", "router", {"strategy": name, "parameters": parameters})
        assert (now["strategy"], now["parameters"]) == (name, parameters)


def set_role(baton, name: str, role: str, by_command: bool):
    if by_command:
        assert command(baton, "role", name, role) == f"{name} is now used as {role}\n"
    else:
        assert admin(baton, "PUT", f"engines/{name}/role", {"role": role})["role"] == role


class RolesAtWork:
    """How many requests engines have served in each role: those whose prompts they handed over, and those they finished.
    Those that are in flight when a role changes may count for either, so as many are left out."""

    def __init__(self, baton):
        self.baton, self.served, self.changes = baton, Counter(), 0
        self.before = self.counts()

    def counts(self) -> dict[str, float]:
        counts = Counter()
        for name in ("baton_finished_total", "baton_handoffs_sent_total"):
            for sample in self.baton.samples(name):
                counts[sample.labels["engine"]] += sample.value
        return counts

    def count(self, roles: dict[str, str]):
        now = self.counts()
        for name, role in roles.items():
            self.served[role] += now[name] - self.before[name]
        self.before, self.changes = now, self.changes + 1

    def least(self) -> float:
        return min(self.served[role] for role in ("prefill", "decode", "mixed")) - CLIENTS * self.changes


def roles_of(baton) -> dict[str, str]:
    return {one["name"]: one["role"] for one in admin(baton, "GET", "router")["engines"]}


def test_everything_changes_every_second_and_no_request_notices(tmp_path, story):
    turns = itertools.cycle(["decode", "mixed", "prefill"])
    with serve(tmp_path, "--prefill", "2", "--decode", "2", *ENGINES, secret=SECRET) as baton:
        names = list(roles_of(baton))
        by_strategy, roles = Counter(), RolesAtWork(baton)
        with under_load(baton, story) as load:
            for turn in itertools.count():
                name, parameters = STRATEGIES[turn % len(STRATEGIES)]
                roles.count(roles_of(baton))
                set_role(baton, names[turn % len(names)], next(turns), by_command=turn % 2 == 0)
                set_strategy(baton, name, parameters, by_command=turn % 2 == 1)
                begin = time.monotonic()
                time.sleep(1)
                by_strategy[name] += load.within(begin, time.monotonic())
                load.check()
                if min(by_strategy[one] for one, _ in STRATEGIES) >= ENOUGH and roles.least() >= ENOUGH:
                    break
                assert turn < 120, (by_strategy, roles.served)
        print(f"{turn + 1} turns, {len(load.served)} requests: {dict(by_strategy)}, {dict(roles.served)}")
        assert baton.metric("baton_handoffs_total") > ENOUGH


def test_engines_join_and_leave_under_load(tmp_path, story):
    with serve(tmp_path, "--prefill", "1", "--decode", "1", *ENGINES, secret=SECRET) as baton:
        with engine(tmp_path, *ENGINES, secret=SECRET) as late, under_load(baton, story) as load:
            assert command(baton, "add", late.address, "--role", "decode") == f"{late.address} has joined as decode-1\n"
            again = attempt(baton, "add", late.address)
            assert again.returncode == 2 and f"engine decode-1 is at {late.address} already" in again.stderr
            assert re.search(r"^decode-1 +decode +ready .* http://" + late.address, command(baton, "show"), re.M)

            def finished(name: str) -> float:
                counts = {one.labels["engine"]: one.value for one in baton.samples("baton_finished_total")}
                return counts.get(name, 0)

            eventually(lambda: finished("decode-1") > 20, "the engine that joined serves")

            # One that was started here: when its requests have ended, its process does.
            before, children = len(load.served), len(baton.engine_pids())
            assert command(baton, "remove", "decode-0").startswith("decode-0 leaves")
            eventually(lambda: list(roles_of(baton)) == ["prefill-0", "decode-1"], "it has left")
            eventually(lambda: len(baton.engine_pids()) == children - 1, "its process has exited")
            eventually(lambda: len(load.served) > before + 50, "the others serve")
            assert admin(baton, "PUT", "engines/prefill-0/role", {"role": "mixed"})["role"] == "mixed"

            # One that was not: it goes on for others, and may join again.
            assert admin(baton, "DELETE", "engines/decode-1")["state"] == "leaving"
            eventually(lambda: list(roles_of(baton)) == ["prefill-0"], "it has left")
            assert late.call("/ready")[0] == 200
            only = attempt(baton, "remove", "prefill-0")
            assert only.returncode == 2 and "prefill-0 is the only engine" in only.stderr
            joined = admin(baton, "POST", "engines", {"address": f"http://{late.address}", "role": "mixed"})
            assert (joined["name"], joined["state"], joined["address"]) == ("mixed-0", "ready", late.address)
            eventually(lambda: finished("mixed-0") > 20, "it serves again")


def test_mistakes_are_named_and_change_nothing(tmp_path):
    with serve(tmp_path, "--mock=", "--prefill", "0", "--connect-timeout", "1", secret=SECRET) as baton:
        before = admin(baton, "GET", "router")
        for arguments, code, message in [
            (["set", "random"], 2, "invalid value 'random' for '<STRATEGY>'"),
            (["set", "round-robin", "--load-slack", "1"], 2, "round-robin takes no --load-slack"),
            (["set", "disagg", "--pd-balance-factor", "2"], 2, "--pd-balance-factor must be at least 0 and below 1, not 2"),
            (["role", "decode-7", "mixed"], 2, 'there is no engine "decode-7": there are decode-0'),
            (["role", "decode-0", "boss"], 2, '"boss" is not a role'),
            (["add", "127.0.0.1:1"], 1, "engine mixed-0 at 127.0.0.1:1 cannot be reached"),
            (["remove", "decode-0"], 2, "decode-0 is the only engine"),
        ]:
            ended = attempt(baton, *arguments)
            assert ended.returncode == code and message in ended.stderr, (arguments, ended.stderr)
        for secret, message in [(None, "--secret-file or BATON_SECRET"), ("guessed", "not the secret of this deployment")]:
            ended = attempt(baton, "set", "round-robin", secret=secret)
            assert ended.returncode == 2 and message in ended.stderr, ended.stderr
        assert admin(baton, "GET", "router") == before
        other = subprocess.run([BINARY, "router", "show", "--url", "127.0.0.1:1"], capture_output=True, text=True,
                               env=os.environ | {"BATON_SECRET": SECRET})
        assert other.returncode == 1 and "no answer from http://127.0.0.1:1" in other.stderr, other.stderr
        (tmp_path / "secret").write_text(SECRET + "\n")
        shown = command(baton, "show", "--secret-file", str(tmp_path / "secret"), secret=None)
        assert shown.startswith("routed auto, move_roles 1, tpot_ms 0, ttft_ms 0\n\nENGINE "), shown
