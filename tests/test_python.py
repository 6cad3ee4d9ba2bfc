"""The Python package: deployments and routers, in this process, over real engines."""
import asyncio
import doctest
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

import baton as package
from baton._exchange import Exchange
from deployment import Deployment, engine, eventually
from workload import bodies, check_all_in_flight, prompts, reference, run

EXAMPLES = Path(__file__).parent.parent / "examples/python"
STORY = {"model": "storyteller-11m", "prompt": "Once upon a time there was a big dog that", "temperature": 0}


@pytest.fixture(scope="module")
def alone(single):
    return reference(single)


@contextmanager
def deployed(**options):
    """As the tests' helpers see a deployment."""
    with package.Deployment(port=0, **options) as deployment:
        yield deployment, Deployment(None, deployment.url.removeprefix("http://"), Path(os.devnull))


@contextmanager
def routed(router_type, engines=3, model_lib=None, **options):
    """A router with the original's surface, over engines on free ports."""
    router = router_type(
        "storyteller-11m", model_lib, ["127.0.0.1"] * engines, [0] * engines, [1] * engines, **options
    )
    try:
        router.serve("127.0.0.1", 0)
        yield router, Deployment(None, router.deployment.url.removeprefix("http://"), Path(os.devnull))
    finally:
        router.terminate()


def story(url: str, **fields) -> str:
    body = json.dumps(STORY | fields).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]


STRATEGIES = {
    "data_parallel": ("DataParallel", dict(prefill=0, decode=2)),
    "one_prefill_one_decode": ("OnePrefillOneDecode", dict(prefill=1, decode=1)),
    "many_prefill_many_decode": ("ManyPrefillManyDecode", dict(prefill=2, decode=2)),
    "cache_aware": ("CacheAware", dict(prefill=1, decode=2)),
    "balanced": ("Balanced", dict(prefill=1, decode=1)),
    "context_migration": ("ContextMigration", dict(prefill=0, decode=2)),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_of_the_examples_give_the_same_bytes(name, alone):
    requests, expected = alone
    class_name, engines = STRATEGIES[name]
    source = EXAMPLES / f"{name}.py"
    assert len(source.read_text().splitlines()) < 40
    strategy = runpy.run_path(str(source))[class_name]()
    with deployed(strategy=strategy, **engines) as (deployment, server):
        assert deployment.strategy == class_name
        check_all_in_flight(server.url, requests, expected)
        handoffs = server.metric("baton_handoffs_received_total")
        if name == "data_parallel":
            assert handoffs == 0
        elif name != "context_migration":
            assert handoffs > len(requests) / 2, "prompts were not handed over"
        assert server.metric("baton_resumed_total") == 0
    assert len(list(EXAMPLES.glob("*.py"))) == len(STRATEGIES) + 2, "an example that no test runs"


def test_a_conversation_migrates_with_its_context():
    migration = runpy.run_path(str(EXAMPLES / "context_migration.py"))["ContextMigration"](most=-1)
    with deployed(strategy=migration, prefill=0, decode=2) as (_, server):
        text = "The cat sat on the mat. " * 20
        first = story(server.url, prompt=text, max_tokens=8)
        assert story(server.url, prompt=text, max_tokens=8) == first
        assert server.metric("baton_handoffs_received_total") == 1


class Counting(package.Router):
    """Each of the calls, as a program that was written for the original makes them."""

    async def translate_request(self, request, request_id):
        request.user = request_id
        end = len(request.prompt) - 1
        decode = self._pick_endpoint([1, 2])
        self.num_running_requests[decode] += 1
        try:
            room = package.PrepRecvRequest(**request.model_dump(), end=end)
            kv_addr_info, _ = await self.send_prepare_receive(session=None, request=room, server_url=self.server_urls[decode])
            rank = self.device_id_starts[decode]
            send = package.RemoteSendRequest(
                **request.model_dump(), begin=0, end=end, kv_addr_info=kv_addr_info, recv_rank=rank
            )
            await self.send_remote_send(session=None, request=send, server_url=self.server_urls[0])
            start = package.StartGenerateRequest(**request.model_dump(), begin=end)
            async for response in self.send_start_generate(None, start, self.server_urls[decode]):
                if response.choices[0].finish_reason == "preempt":
                    yield None
                yield response
        finally:
            self.num_running_requests[decode] -= 1


class RetryingOften(Counting):
    """Gives up after each third response, and so goes on with the next attempt."""

    retried = 0

    async def translate_request(self, request, request_id):
        seen = 0
        async for response in super().translate_request(request, request_id):
            yield response
            seen += 1
            if seen == 3 and not all(choice.finish_reason for choice in response.choices):
                self.retried += 1
                yield None


@pytest.mark.parametrize("cached", [False, True])
def test_a_router_written_for_the_original_gives_the_same_bytes(alone, cached):
    requests, expected = alone
    with routed(Counting, enable_prefix_cache=cached) as (router, server):
        check_all_in_flight(server.url, requests, expected)
        assert router.device_id_starts == [0, 1, 2, 3] and router.num_servers == len(router.servers) == 3
        assert server.metric("baton_handoffs_received_total") > len(requests) / 2
        eventually(lambda: router.num_running_requests == [0, 0, 0], "all of its generators have ended")


@pytest.mark.parametrize("mode, factor", [("round-robin", 0.0), ("disagg", 0.0), ("disagg", 0.3)])
def test_both_of_its_own_ways_in_python_and_in_rust(alone, mode, factor):
    class Same(package.Router):
        pass

    requests, expected = alone
    for router_type in (Same, package.Router):
        with routed(router_type, router_mode=mode, pd_balance_factor=factor) as (router, server):
            check_all_in_flight(server.url, requests, expected, runs=1)
            assert (router.deployment.strategy == "Same") == (router_type is Same)
            assert (server.metric("baton_handoffs_received_total") > 0) == (mode == "disagg")


def test_yielding_none_goes_on_without_repeating_a_token(single):
    with routed(RetryingOften) as (router, server):
        whole = story(single.url, max_tokens=40)
        assert story(server.url, max_tokens=40) == whole
        assert router.retried > 2
        assert server.metric("baton_resumed_total") == router.retried


@pytest.mark.parametrize("name", ["one_prefill_one_decode", "many_prefill_many_decode", "balanced"])
def test_no_byte_is_wrong_when_engines_die(alone, name):
    requests, expected = alone
    class_name, engines = STRATEGIES[name]
    strategy = runpy.run_path(str(EXAMPLES / f"{name}.py"))[class_name]()
    with deployed(strategy=strategy, **engines) as (_, server):
        check_with_a_kill(server, requests, expected)


def test_no_byte_is_wrong_when_engines_of_a_router_die(alone):
    requests, expected = alone
    with routed(Counting) as (router, server):
        check_with_a_kill(server, requests, expected)
        gc.collect()
        eventually(lambda: not router._exchanges, "what was held for requests is gone")
        assert not any(isinstance(thing, Exchange) for thing in gc.get_objects())
        eventually(lambda: server.metric("baton_reservations") == 0, "all room was given back")


def check_with_a_kill(server, requests, expected):
    """Each engine is killed once, one after the other, while all requests are in flight."""
    server.process = subprocess.Popen(["true"])
    server.process.pid = os.getpid()
    victims = [pid for pid in server.engine_pids() if "engine --supervised" in server.engine_name(pid)]
    assert len(victims) == len(server.samples("baton_engine_up"))
    for victim in victims:
        before = server.metric("baton_generated_tokens_total")
        answers: list = []
        load = threading.Thread(target=lambda: answers.extend(run(server.url, requests, concurrent=True)))
        load.start()
        eventually(lambda: server.metric("baton_generated_tokens_total") > before, "tokens are generated")
        os.kill(victim, signal.SIGKILL)
        load.join()
        assert [answer["choices"] for answer in answers] == expected
        eventually(lambda: server.metric("baton_engine_up") == len(server.samples("baton_engine_up")), "it is back")


def test_what_a_router_raises_is_what_its_client_sees(capfd):
    class Raising:
        error: BaseException | None = None

        async def route(self, request, fleet):
            if self.error is not None:
                raise self.error

    strategy = Raising()
    cases = [
        (ValueError("no such thing"), 500, "the router Raising failed; the log of the server says why"),
        (None, 500, "the router Raising failed"),
        (ExceptionGroup("calls", [ValueError("one"), package.EngineError("two")]), 500, "the router Raising failed"),
        (ExceptionGroup("calls", [package.ConflictError("only ours")]), 409, "only ours"),
        (package.CallerError("too long a story", param="prompt"), 400, "too long a story"),
        (package.ConflictError("another weight"), 409, "another weight"),
        (package.BusyError("never fits", retry_after=None), 422, "never fits"),
        (package.EngineError("is broken for good", retry_after=None), 500, "is broken for good"),
    ]
    with deployed(prefill=0, decode=1, strategy=strategy) as (deployment, server):
        for error, status, message in cases:
            strategy.error = error
            got, answer = server.call("/v1/completions", STORY)
            assert (got, answer["error"]["message"][: len(message)]) == (status, message)
        assert answer["error"]["param"] is None
        deployment.use(None)
        assert server.call("/v1/completions", STORY)[0] == 200
    log = capfd.readouterr().err
    assert "ValueError: no such thing" in log and "test_python.py" in log, "the traceback is in the log"
    assert "route() returned None, not the leg" in log


def test_a_router_that_blocks_the_loop_is_named_in_a_warning(capfd):
    class Blocking:
        async def route(self, request, fleet):
            time.sleep(2)
            return await fleet.serving().least_loaded().start_generate(request)

    with deployed(prefill=0, decode=1, strategy=Blocking()) as (_, server):
        assert server.call("/v1/completions", STORY)[0] == 200
    log = capfd.readouterr().err
    assert "the router Blocking has blocked the event loop for" in log and "time.sleep(2)" in log


def test_a_client_that_leaves_ends_its_request_everywhere():
    ended = threading.Event()

    class Watching(Counting):
        async def translate_request(self, request, request_id):
            try:
                async for response in super().translate_request(request, request_id):
                    yield response
            finally:
                ended.set()

    with routed(Watching, model_lib="mock") as (router, server):
        body = json.dumps(STORY | {"stream": True, "max_tokens": 4000, "model": "mock"}).encode()
        url = server.url + "/v1/completions"
        models = server.call("/v1/models")[1]["data"][0]["id"]
        body = json.dumps(json.loads(body) | {"model": models}).encode()
        answer = urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=60)
        answer.readline()
        answer.close()
        assert ended.wait(20), "its generator goes on"
        eventually(lambda: sum(router.num_running_requests) == 0, "its load is given back")
        eventually(lambda: server.metric("baton_requests_running") == 0, "engines have ended it")


def test_a_client_that_leaves_before_the_first_token():
    class Late(Counting):
        left = threading.Event()
        yielded = threading.Event()

        async def translate_request(self, request, request_id):
            async for response in super().translate_request(request, request_id):
                try:
                    await asyncio.to_thread(self.left.wait)
                    await asyncio.sleep(0.3)
                except asyncio.CancelledError:
                    # As careless routers do.
                    pass
                self.yielded.set()
                yield response

    with routed(Late) as (router, server):
        with pytest.raises(TimeoutError):
            server.call("/v1/completions", STORY, timeout=0.5)
        router.left.set()
        assert router.yielded.wait(20)
        assert story(server.url), "the loop goes on"
        eventually(lambda: router.num_running_requests == [0, 0, 0], "its load is given back")


def test_what_is_served_is_of_the_request():
    kept: list = []

    class Mixing:
        async def route(self, request, fleet):
            leg = await fleet.serving().least_loaded().start_generate(request)
            kept.append(leg)
            return kept[0]

    with deployed(prefill=0, decode=1, strategy=Mixing()) as (deployment, server):
        assert server.call("/v1/completions", STORY)[0] == 200
        assert server.call("/v1/completions", STORY)[0] == 500, "the leg of the first request"
        kept.clear()


def test_responses_without_text_may_be_left_out(single):
    class Terse(package.Router):
        async def translate_request(self, request, request_id):
            async for response in super().translate_request(request, request_id):
                if any(choice.text for choice in response.choices):
                    yield response

    with routed(Terse, engines=1, router_mode="round-robin") as (_, server):
        fields = dict(prompt="The end", max_tokens=12, logit_bias={str(token): -100 for token in range(0, 60)})
        assert story(server.url, **fields) == story(single.url, **fields)
        assert story(server.url, max_tokens=1) == story(single.url, max_tokens=1)


def test_starts_that_fail_leave_nothing(tmp_path):
    def engines() -> list[int]:
        here = Deployment(subprocess.Popen(["true"]), "127.0.0.1:0", Path(os.devnull))
        here.process.pid = os.getpid()
        return [pid for pid in here.engine_pids() if "--name=decode-" in here.engine_name(pid)]

    with package.Deployment(prefill=0, decode=1, port=0) as first:
        before = engines()
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(ValueError, match="another program has this port"):
            package.start(prefill=0, decode=1, port=port)
        eventually(lambda: engines() == before, "its engines have ended")

        async def impatient():
            async with asyncio.timeout(0.02):
                async with package.Deployment(prefill=0, decode=1, port=0):
                    pass

        with pytest.raises(TimeoutError):
            asyncio.run(impatient())
        eventually(lambda: engines() == before, "its engines have ended")
        package.start(prefill=0, decode=1, port=0)
        package.stop()
        assert engines() == [] and first.wait(0)


def test_all_that_wait_see_the_end():
    deployment = package.start(prefill=0, decode=1, port=0)
    assert not deployment.wait(0.01)
    waiting = [threading.Thread(target=deployment.wait) for _ in range(2)]
    for thread in waiting:
        thread.start()
    deployment.stop()
    for thread in waiting:
        thread.join(5)
        assert not thread.is_alive()
    assert deployment.wait(0) and deployment.wait()


def test_a_program_that_ends_in_the_middle(tmp_path):
    """Requests are open at a router when the interpreter ends, and engines start although no path is searched."""
    program = """
import threading, time, urllib.request, json, baton

class Slow:
    async def route(self, request, fleet):
        return await fleet.serving().least_loaded().start_generate(request)

deployment = baton.start(model_lib="mock", mock="decode-ms=20", prefill=0, decode=1, port=0, strategy=Slow())
def load():
    body = json.dumps({"model": "storyteller-11m", "prompt": "once", "max_tokens": 500, "stream": True}).encode()
    request = urllib.request.Request(deployment.url + "/v1/completions", body, {"content-type": "application/json"})
    urllib.request.urlopen(request).read()
for _ in range(8):
    threading.Thread(target=load, daemon=True).start()
time.sleep(0.5)
print(deployment.requests_in_flight)
"""
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "8\n"), ended.stderr


def test_changes_by_a_router():
    class Changing(package.Router):
        changes: dict = {}

        async def translate_request(self, request, request_id):
            for name, value in self.changes.items():
                setattr(request, name, value)
            async for response in super().translate_request(request, request_id):
                yield response

    with routed(Changing, engines=1, router_mode="round-robin") as (router, server):
        whole = story(server.url, max_tokens=12)
        router.changes = {"max_tokens": 5}
        assert whole.startswith(story(server.url, max_tokens=12)) and story(server.url, max_tokens=12) != whole
        router.changes = {"prompt": router.tokenizer.encode("Once upon a time there was a big dog that")}
        assert story(server.url, prompt="The moon", max_tokens=12) == whole
        for change, why in [({"n": 2}, "a router cannot change n"), ({"stop": "dog"}, "a router cannot change stop")]:
            router.changes = change
            assert server.call("/v1/completions", STORY)[0] == 500, why


def test_engines_are_called_on_the_loop_of_their_router():
    kept: list = []

    class Keeping:
        async def route(self, request, fleet):
            kept.append((request, fleet))
            return await fleet.engine(0).start_generate(request)

    with deployed(prefill=0, decode=1, strategy=Keeping()) as (deployment, server):
        story(server.url)
        request, fleet = kept[0]
        with pytest.raises(package.EngineError, match="engine nobody is not ready"):
            fleet.engine("nobody")
        with pytest.raises(RuntimeError, match="no running event loop"):
            fleet.engine(0).start_generate(request)

        async def elsewhere():
            fleet.engine(0).start_generate(request)

        with pytest.raises(RuntimeError, match="on the loop that runs it"):
            asyncio.run(elsewhere())
        assert deployment.tokenizer.decode(request.prompt).strip().startswith("Once upon a time")


def test_strategies_and_roles_change_while_it_serves(alone):
    requests, expected = alone
    ways = [("round-robin", {}), ("disagg", {"pd_balance_factor": 0.2}), ("prefix-aware", {"load_slack": 2}), None]
    with deployed(prefill=0, decode=2) as (deployment, server):
        answers: list = []
        load = threading.Thread(target=lambda: [answers.append(run(server.url, requests, concurrent=False)) for _ in range(3)])
        load.start()
        number = 0
        while load.is_alive():
            way = ways[number % len(ways)]
            deployment.use(None) if way is None else deployment.use(way[0], **way[1])
            deployment.set_role("decode-0", ["prefill", "mixed", "decode"][number // 4 % 3])
            number += 1
            time.sleep(0.1)
        assert number > len(ways) * 3, "it was over too soon"
        assert all([answer["choices"] for answer in one] == expected for one in answers) and len(answers) == 3
        assert server.metric("baton_handoffs_received_total") > 0
        with pytest.raises(ValueError, match="did you mean round-robin"):
            deployment.use("roundrobin")
        with pytest.raises(ValueError, match="it has pd_balance_factor"):
            deployment.use("disagg", share=1)
        with pytest.raises(KeyError, match='there is no engine "decode-7"'):
            deployment.set_role("decode-7", "decode")
        with pytest.raises(ValueError, match="roles are prefill, decode and mixed"):
            deployment.set_role("decode-0", "both")


def test_engines_join_and_leave(tmp_path):
    with engine(tmp_path) as other, deployed(prefill=0, decode=1, secret_file=secret_file(tmp_path)) as (deployment, server):
        name = deployment.add(other.address, role="decode")
        assert [(one.name, one.address) for one in deployment.engines] == [("decode-0", None), (name, other.address)]
        deployment.use("round-robin")
        before = other.metric("baton_finished_total")
        assert story(server.url) == story(server.url)
        assert other.metric("baton_finished_total") == before + 1
        deployment.remove(name)
        eventually(lambda: [one.name for one in deployment.engines] == ["decode-0"], "it has left")
        with pytest.raises(package.ServeError):
            deployment.add("127.0.0.1:1")


def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("of-the-tests")
    file.chmod(0o600)
    return file


def test_options_and_strategies_that_cannot_be():
    with pytest.raises(ValueError, match="unexpected argument '--decodes'"):
        package.start(decodes=2)
    with pytest.raises(ValueError, match="no model"):
        package.start("no-such-model")
    with pytest.raises(TypeError, match="write Counting\\(\\)"):
        package.Deployment(strategy=Counting)
    with pytest.raises(TypeError, match="has no method route"):
        package.Deployment(strategy=object())
    with pytest.raises(ValueError, match="3 hosts, 2 ports, 3 numbers of GPUs"):
        package.Router("storyteller-11m", None, ["127.0.0.1"] * 3, [0, 0], [1, 1, 1])
    with pytest.raises(RuntimeError, match="has not been started"):
        package.Deployment().engines


def test_two_at_once_in_a_notebook():
    async def notebook():
        async with package.Deployment(prefill=0, decode=1, port=0) as one:
            async with package.Deployment(port=0) as two:
                texts = [await asyncio.to_thread(story, deployment.url) for deployment in (one, two)]
                assert texts[0] == texts[1]
            with pytest.raises(OSError):
                story(two.url)
            return await asyncio.to_thread(story, one.url) == texts[0]

    assert asyncio.run(notebook())


def test_the_command_is_the_binary(tmp_path):
    installed = Path(sys.executable).parent / "baton"
    for command in ([installed], [sys.executable, "-m", "baton"]):
        versions = [subprocess.run([*line, "--version"], capture_output=True, text=True, check=True).stdout for line in (command, command)]
        assert versions[0].startswith("baton ") and versions[0] == versions[1]
    wrong = subprocess.run([installed, "serve", "--prot", "1"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--port" in wrong.stderr


@pytest.mark.parametrize("example, engines", [("microserving_basic", 2), ("microserving_router", 3)])
def test_programs_for_the_original_serve_and_leave_nothing_running(single, tmp_path, example, engines):
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen([sys.executable, EXAMPLES / f"{example}.py"], stdout=log, stderr=log, cwd=tmp_path)
    server = Deployment(program, "127.0.0.1:9123", tmp_path / "log")
    try:
        eventually(lambda: "Serving" in server.log.read_text() or program.poll() is not None, "it serves")
        assert program.poll() is None, server.log.read_text()
        assert story(server.url, max_tokens=30) == story(single.url, max_tokens=30)
        children = server.engine_pids()
        assert len(children) == engines
    finally:
        program.send_signal(signal.SIGTERM)
    assert program.wait(60) == 0, server.log.read_text()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_its_types_hold_and_its_docstrings_run(tmp_path):
    sources = [EXAMPLES.parent.parent / "python/baton", *EXAMPLES.glob("*.py")]
    check = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--allow-untyped-defs", *sources]
    checked = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    for module in (package, package.deployment, package.router, package.strategy):
        names = {"baton": package, "Router": package.Router}
        assert doctest.testmod(module, extraglobs=names).failed == 0
