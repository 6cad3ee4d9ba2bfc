"""Strategies of one's own in Rust, in a program of one's own: examples/rust."""
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from deployment import BINARY, Deployment, eventually, free_port
from workload import check_all_in_flight, reference

PROGRAM = Path(os.environ.get("BATON_EXAMPLES", BINARY.parent / "baton-examples"))
SOURCES = Path(__file__).parent.parent / "examples/rust/src"
PLUMBING = {"main", "pick"}
STRATEGIES = sorted({source.stem for source in SOURCES.glob("*.rs")} - PLUMBING)


@contextmanager
def serving(tmp_path: Path, strategy: str, *flags: str):
    address = f"127.0.0.1:{free_port()}"
    command = [PROGRAM, strategy, "--port", address.rpartition(":")[2], *flags]
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    server = Deployment(program, address, tmp_path / "log")
    try:
        eventually(lambda: "Serving" in server.log.read_text() or program.poll() is not None, "it serves")
        assert program.poll() is None, server.log.read_text()
        yield server
    finally:
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0, server.log.read_text()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_gives_the_same_bytes(tmp_path, single, strategy):
    assert len((SOURCES / f"{strategy}.rs").read_text().splitlines()) < 40
    requests, expected = reference(single)
    engines = ["--prefill", "0", "--decode", "2"] if strategy in ("data_parallel", "context_migration") else []
    with serving(tmp_path, strategy.replace("_", "-"), *engines) as server:
        check_all_in_flight(server.url, requests, expected)
        handoffs = server.metric("baton_handoffs_received_total")
        if strategy == "data_parallel":
            assert handoffs == 0
        elif strategy != "context_migration":
            assert handoffs > len(requests) / 2, "prompts were not handed over"
        assert server.metric("baton_resumed_total") == 0


def test_a_strategy_that_does_not_exist():
    ended = subprocess.run([PROGRAM, "random"], capture_output=True, text=True)
    assert ended.returncode == 2 and 'there is no strategy "random"' in ended.stderr
