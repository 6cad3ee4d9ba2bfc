"""Engines that are listed, started by hand, shared by routers, on other hosts, lost and found again."""
import os
import re
import shutil
import socket
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import workload
from deployment import DISAGG, engine, eventually, free_port, refused, router, serve

# So that every prompt has to be handed over.
NO_CACHE = "--enable-prefix-cache=false"


@pytest.fixture(scope="module")
def story(single):
    """Requests, and what must be answered to them."""
    requests = workload.bodies(workload.prompts(single.tokens))[8:16]
    return requests, [answer["choices"] for answer in workload.run(single.url, requests, concurrent=False)]


def answers_of(baton, requests: list[dict], seed=0) -> list:
    return [answer["choices"] for answer in workload.run(baton.url, requests, concurrent=True, arrival_seed=seed)]


def by_engine(baton, name: str) -> dict[str, float]:
    return {sample.labels["engine"]: sample.value for sample in baton.samples(name)}


@contextmanager
def when_generating(baton, act):
    """Does it in the middle of what the block does."""
    begun = baton.metric("baton_generated_tokens_total")

    def wait_and_act():
        eventually(lambda: baton.metric("baton_generated_tokens_total") > begun + 20, "something is generated")
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def test_listed_engines_serve_in_turn_at_their_ports(tmp_path, story):
    requests, expected = story
    ports = [free_port(), free_port()]
    with serve(tmp_path, "--endpoint-ports", ",".join(map(str, ports))) as baton:
        assert answers_of(baton, requests) == expected
        # One each was the readiness probe.
        half = len(requests) / 2 + 1
        assert by_engine(baton, "baton_finished_total") == {"mixed-0": half, "mixed-1": half}
        for port in ports:
            socket.create_connection(("127.0.0.1", port)).close()


def test_of_listed_engines_the_first_computes_prompts_in_disagg_mode(tmp_path, story):
    requests, expected = story
    ports = f"{free_port()},{free_port()},0"
    flags = ["--endpoint-hosts", "localhost,127.0.0.2,127.0.0.1", "--endpoint-ports", ports, "--endpoint-num-gpus", "2,1,1"]
    with serve(tmp_path, *flags, "--router-mode", "disagg", NO_CACHE) as baton:
        assert answers_of(baton, requests) == expected
        # A sender may hear of its success later than the router of the answer's end, and then it is not polled any more.
        received = by_engine(baton, "baton_handoffs_received_total")
        assert set(received) == {"prefill-0", "decode-0", "decode-1"}
        assert received.pop("prefill-0") == 0 and sum(received.values()) == len(requests)


def test_two_routers_share_engines_and_neither_is_disturbed(tmp_path, story):
    requests, expected = story
    with ExitStack() as stack:
        prefill, *decode = [stack.enter_context(engine(tmp_path, NO_CACHE)) for _ in range(3)]
        flags = [*DISAGG, "--engine", f"http://{prefill.address}=prefill"]
        for one in decode:
            flags += ["--engine", f"{one.address}=decode"]
        routers = [stack.enter_context(router(tmp_path, *flags)) for _ in range(2)]
        answers: list = [None, None]

        def send(index: int):
            answers[index] = answers_of(routers[index], requests, seed=index)

        threads = [threading.Thread(target=send, args=(index,)) for index in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert answers == [expected, expected]
        for one in routers:
            assert one.metric("baton_handoffs_total") == len(requests)
            # What engines report is everybody's; three probes for each router are among it.
            eventually(lambda: one.metric("baton_finished_total") == 2 * (len(requests) + 3), "all is reported to all")
        # A router that ends takes nothing with it.
        routers[0].process.kill()
        assert answers_of(routers[1], requests) == expected


def test_an_engine_that_is_lost_is_looked_for_until_it_is_back(tmp_path, story):
    requests, expected = story
    with ExitStack() as stack:
        stays = stack.enter_context(engine(tmp_path))
        goes = ExitStack()
        lost = goes.enter_context(engine(tmp_path))
        flags = ["--engine", stays.address, "--engine", lost.address, "--router-mode", "round-robin"]
        baton = stack.enter_context(router(tmp_path, *flags))
        with when_generating(baton, lost.process.kill):
            assert answers_of(baton, requests) == expected
        assert baton.metric("baton_resumed_total") > 0, "nothing was in flight on the engine that died"
        goes.close()
        assert by_engine(baton, "baton_engine_up") == {"mixed-0": 1, "mixed-1": 0}

        # A router can start without it, too.
        late = stack.enter_context(router(tmp_path, *flags))
        assert answers_of(late, requests) == expected

        stack.enter_context(engine(tmp_path, port=lost.port))
        for each in (baton, late):
            eventually(lambda: by_engine(each, "baton_engine_up") == {"mixed-0": 1, "mixed-1": 1}, "it is found again")
        before = by_engine(baton, "baton_finished_total")["mixed-1"]
        assert answers_of(baton, requests) == expected
        assert by_engine(baton, "baton_finished_total")["mixed-1"] == before + len(requests) / 2


def test_an_engine_that_does_not_belong_is_refused_with_a_reason(tmp_path):
    with ExitStack() as stack:
        good = stack.enter_context(engine(tmp_path)).address
        other = stack.enter_context(engine(tmp_path, "--dtype", "f32")).address
        mock = stack.enter_context(engine(tmp_path, "--mock=")).address

        code, message = refused("router", "--engine", good, secret="guessed")
        assert code == 2 and f"error: engine mixed-0 at {good}: refused: wrong secret\nhint: engines and routers" in message
        code, message = refused("router", "--engine", good, "--engine", other)
        assert code == 2 and "has numerics" in message and "f32" in message and "bf16" in message, message
        code, message = refused("router", "--engine", good, "--engine", mock)
        assert code == 2 and "has numerics" in message and "mock" in message, message
        code, message = refused("router", "no-such-model", "--engine", good)
        assert code == 2 and 'no model "no-such-model"' in message, message
        unused = f"127.0.0.1:{free_port()}"
        code, message = refused("router", "--engine", unused, "--connect-timeout", "1")
        assert code == 1 and f"error: engine mixed-0 at {unused} cannot be reached: " in message, message
        flags = ["--endpoint-hosts", "127.0.0.1,engine.invalid", "--endpoint-ports", "0,9001", "--connect-timeout", "1"]
        code, message = refused("serve", *flags, "--router-port", "0")
        assert code == 1 and "error: engine mixed-1 at engine.invalid:9001 cannot be reached: " in message, message


def run(*command: str):
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def another_host():
    """A network of its own, at the other end of a cable."""
    name = f"baton{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to make network namespaces")
    try:
        run("ip", "link", "add", "baton-a", "type", "veth", "peer", "name", "baton-b", "netns", name)
        run("ip", "address", "add", "198.18.77.1/30", "dev", "baton-a")
        run("ip", "link", "set", "baton-a", "up")
        run("ip", "-n", name, "address", "add", "198.18.77.2/30", "dev", "baton-b")
        run("ip", "-n", name, "link", "set", "baton-b", "up")
        yield "198.18.77.1", "198.18.77.2", name
    finally:
        subprocess.run(["ip", "link", "delete", "baton-a"], capture_output=True)
        run("ip", "netns", "delete", name)


@pytest.mark.skipif(not shutil.which("ip"), reason="needs iproute2")
def test_engines_on_another_host_are_attached_to(tmp_path, story):
    """The prefill engine is started here, the decode engine runs there; the KV goes over the cable, until that is cut."""
    requests, expected = story
    secret = tmp_path / "secret"
    secret.write_text("of-the-tests\n")
    with another_host() as (here, there, name):
        flags = ["--fabric", "tcp", NO_CACHE, "--secret-file", str(secret)]
        with engine(tmp_path, *flags, host=there, port=9001, prefix=["ip", "netns", "exec", name]):
            lists = ["--endpoint-hosts", f"{here},{there}", "--endpoint-ports", "9001,9001", "--router-mode", "disagg"]
            with serve(tmp_path, *lists, *flags) as baton:
                assert len(baton.engine_pids()) == 1
                assert f"decode-0  http://{there}:9001  " in baton.log.read_text()
                assert answers_of(baton, requests) == expected
                assert by_engine(baton, "baton_handoffs_received_total")["decode-0"] == len(requests)

                with when_generating(baton, lambda: run("ip", "-n", name, "link", "set", "baton-b", "down")):
                    assert answers_of(baton, requests) == expected
                assert baton.metric("baton_resumed_total") > 0, "nothing was in flight when the cable was cut"
                assert by_engine(baton, "baton_engine_up") == {"prefill-0": 1, "decode-0": 0}
                run("ip", "-n", name, "link", "set", "baton-b", "up")
                eventually(lambda: by_engine(baton, "baton_engine_up")["decode-0"] == 1, "it is found again")
                assert answers_of(baton, requests) == expected


def test_two_deployments_do_not_choose_the_same_cores(tmp_path):
    def dealt(deployment) -> list[str]:
        return re.findall(r"--cpus=(\S+)", " ".join(map(deployment.engine_name, deployment.engine_pids())))

    def free() -> list[str]:
        """Deployments of other tests may have some."""
        taken = re.findall(r"@baton-core-(\d+)$", Path("/proc/net/unix").read_text(), re.MULTILINE)
        return [str(cpu) for cpu in sorted(os.sched_getaffinity(0)) if str(cpu) not in taken]

    at_first = free()
    with ExitStack() as deployments:
        for cpu in at_first[:2]:
            one = serve(tmp_path, "--prefill", "0", "--decode", "1", "--threads", "1")
            assert dealt(deployments.enter_context(one)) == [cpu]
        everything = str(len(os.sched_getaffinity(0)))
        with serve(tmp_path, "--prefill", "0", "--decode", "1", "--threads", everything) as whole:
            assert dealt(whole) == [] and "other deployments" in whole.log.read_text()
    assert set(at_first[:2]) <= set(free())
