"""A real `baton serve`, or a single `baton engine`, started and stopped by tests; and waiting for what they do."""
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

BINARY = Path(os.environ.get("BATON_BIN", Path(__file__).parent.parent / "target/release/baton"))
PATIENCE_S = 60
# Every prompt is handed over, however short, and whatever engines have to do.
DISAGG = ["--router-mode", "disagg"]
# Engines give up by themselves what was not taken for 30 s: a test of giving back at once waits less.
AT_ONCE_S = 25
TRY_FOR_S = 180


def eventually(condition, what: str, seconds: float = PATIENCE_S):
    """Waits for what has to happen, on a machine that may be busy with something else, and gives what `condition` gave."""
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.01)
    return met


def tries():
    """Numbers tries for a while. The clock goes on while a busy machine does something else: what is measured by it, or has
    to meet something else in time, is right in one of them."""
    began = time.monotonic()
    for number in itertools.count():
        yield number
        if time.monotonic() - began > TRY_FOR_S:
            return


def when_busy(deployment: "Deployment", sign: str, pid: int, what: signal.Signals) -> threading.Thread:
    """Sends a signal to an engine as soon as a counter moves."""
    before = deployment.metric(sign)

    def wait_and_send():
        while deployment.metric(sign) == before:
            time.sleep(0.002)
        os.kill(pid, what)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    return thread


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Deployment:
    def __init__(self, process: subprocess.Popen, address: str, log: Path, secret: str | None = None):
        self.process, self.address, self.log, self.secret = process, address, log, secret
        self.port, self.url = int(address.rpartition(":")[2]), f"http://{address}"
        self.headers = {"content-type": "application/json"}
        if secret is not None:
            self.headers["authorization"] = f"Bearer {secret}"

    def call(self, path: str, body=None, method=None, timeout=120, headers=None):
        """(status, parsed JSON or text). `body` may be bytes (sent as they are) or anything JSON can hold."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self.headers if headers is None else headers
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except json.JSONDecodeError:
            return status, text

    def tokens(self, text: str) -> list[int]:
        status, body = self.call("/tokenize", {"prompt": text})
        assert status == 200, body
        return body["tokens"]

    def metric(self, name: str) -> float:
        """Sum over all labels of one sample name."""
        return sum(sample.value for sample in self.samples(name))

    def samples(self, name: str) -> list:
        _, text = self.call("/metrics")
        found = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
        assert found, f"no metric {name}"
        return found

    def engine_pids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in children for pid in file.read_text().split()]

    @staticmethod
    def engine_name(pid: int) -> str:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def serve(tmp_path: Path, *flags: str, secret: str | None = None, prefix: list[str] | None = None):
    """Runs `baton serve` until the block ends. `prefix` stands before the command."""
    return gateway(tmp_path, "serve", *flags, secret=secret, prefix=prefix)


def router(tmp_path: Path, *flags: str, secret: str = "of-the-tests"):
    """Runs `baton router` until the block ends."""
    return gateway(tmp_path, "router", *flags, secret=secret)


def gateway(tmp_path: Path, command: str, *flags: str, secret: str | None, prefix: list[str] | None = None):
    address = f"127.0.0.1:{free_port()}"
    return running(tmp_path, address, [command, "--port", address.rpartition(":")[2], *flags], secret, prefix or [])


def engine(
    tmp_path: Path,
    *flags: str,
    secret: str | None = "of-the-tests",
    host: str = "127.0.0.1",
    port: int | None = None,
    prefix: list[str] | None = None,
    model: str = "storyteller-11m",
):
    """Runs a `baton engine` by itself until the block ends. `prefix` stands before the command."""
    address = f"{host}:{port or free_port()}"
    return running(tmp_path, address, ["engine", model, "--listen", address, *flags], secret, prefix or [])


@contextmanager
def running(tmp_path: Path, address: str, command: list[str], secret: str | None = None, prefix: list[str] = []):
    """Fails loudly, with its log, when it does not become ready."""
    name = command[0]
    log = tmp_path / f"{name}-{address.replace(':', '-')}.log"
    env = os.environ | ({"BATON_SECRET": secret} if secret is not None else {})
    with log.open("wb") as out:
        whole = [*prefix, BINARY, *command]
        process = subprocess.Popen(whole, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path, env=env)
    deployment = Deployment(process, address, log, secret)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, f"{name} exited with {process.returncode}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"not ready in {PATIENCE_S} s:\n{log.read_text()}"
            try:
                if deployment.call("/ready", timeout=2)[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        yield deployment
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{name} did not stop within {PATIENCE_S} s:\n{log.read_text()}") from None
        assert "requests are still open" not in log.read_text(), f"{name} had to cut requests off:\n{log.read_text()}"


def refused(*command: str, secret: str = "of-the-tests") -> tuple[int, str]:
    """(exit code, message) of a command that must not succeed."""
    env = os.environ | {"BATON_SECRET": secret}
    ended = subprocess.run([BINARY, *command], capture_output=True, text=True, timeout=60, env=env)
    assert ended.stdout == "", "it announced that it serves"
    return ended.returncode, ended.stderr
