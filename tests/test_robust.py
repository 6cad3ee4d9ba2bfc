"""What a client, a stranger or a shortage must not do to a deployment."""
import os
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deployment import DISAGG, engine, eventually, serve, tries

MIB = 1 << 20
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
MOCK = ["--model-lib", "mock", "--prefill", "0"]


def completion(baton, **fields) -> dict:
    status, answer = baton.call(COMPLETIONS, {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True, "temperature": 0} | fields)
    assert status == 200, answer
    return answer


# --- memory


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("gateway"), *MOCK) as deployment:
        yield deployment


def status_kib(pid: int, field: str) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field + ":")]
    return int(line.split()[1])


@contextmanager
def peak_growth(pid: int, growth: list[int]):
    """Bytes that the process has taken at once on top of what it had."""
    # 5: the peak counts from now.
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = status_kib(pid, "VmRSS")
    yield
    growth.append((status_kib(pid, "VmHWM") - before) * 1024)


def filled(item: bytes, size: int, before: bytes, after: bytes) -> bytes:
    return before + b",".join([item] * ((size - len(before) - len(after)) // (len(item) + 1))) + after


CHAT, MESSAGE = (b'{"max_tokens":1,"messages":[', b"]}"), b'{"role":"user","content":"%s"}'
UNKNOWN = b'{"max_tokens":1,"prompt":"a","zz":[', b"]}"
# (what, body, status)
BODIES = [
    ("1 MiB of small objects in an unknown field", filled(b'{"":0}', MIB, *UNKNOWN), 200),
    ("30 MB of them", filled(b'{"":0}', 30_000_000, *UNKNOWN), 200),
    ("a list of 30 MB in a field that is known", filled(b"[]", 30_000_000, b'{"prompt":"a","stop":[', b"]}"), 400),
    ("seven million prompts of a token", filled(b"[5]", 28_000_000, b'{"max_tokens":1,"prompt":[', b"]}"), 400),
    ("and as text", filled(b'"a"', 28_000_000, b'{"max_tokens":1,"prompt":[', b"]}"), 400),
    ("a prompt of 30 MB of token ids", filled(b"5", 30_000_000, b'{"max_tokens":1,"prompt":[', b"]}"), 400),
    ("a prompt of as much text as may fit the context", b'{"max_tokens":1,"prompt":"' + b"a b " * 16_000 + b'"}', 200),
    ("a chat of 30 MB of text", filled(MESSAGE % (b"a b " * 100_000), 30_000_000, *CHAT), 400),
    ("a chat of small messages", filled(MESSAGE % b"a", 150_000, *CHAT), 400),
]


@pytest.mark.parametrize("body, status", [row[1:] for row in BODIES], ids=[row[0].replace(" ", "-") for row in BODIES])
def test_a_body_takes_a_small_multiple_of_its_size(gateway, body, status):
    completion(gateway)
    growth: list[int] = []
    with peak_growth(gateway.process.pid, growth):
        got, answer = gateway.call(CHATS if b"messages" in body[:40] else COMPLETIONS, body)
    assert got == status, answer
    # Eight times the body, and what a request takes anyway.
    assert growth[0] <= 8 * len(body) + 8 * MIB, f"{growth[0] / MIB:.0f} MiB for {len(body) / MIB:.0f} MiB"
    completion(gateway)


def test_bodies_together_have_a_budget(tmp_path):
    """However many arrive at once: some are refused as busy, small ones are served."""
    body = filled(b'{"":0}', 3 * MIB, *UNKNOWN)
    with serve(tmp_path, *MOCK, "--body-memory", "64M") as baton, ThreadPoolExecutor(32) as pool:
        completion(baton)
        growth: list[int] = []
        with peak_growth(baton.process.pid, growth):
            answers = [pool.submit(baton.call, COMPLETIONS, body) for _ in range(20)]
            small = [pool.submit(completion, baton) for _ in range(8)]
            assert all(answer.result()["usage"]["completion_tokens"] == 4 for answer in small)
            statuses = [answer.result()[0] for answer in answers]
        assert set(statuses) <= {200, 429} and 200 in statuses, statuses
        # Beside the budget, each connection has what the kernel handed over last.
        assert growth[0] <= 64 * MIB + 40 * MIB, f"{growth[0] / MIB:.0f} MiB"


@pytest.mark.parametrize("length", [33 * MIB + 1, 1 << 50])
def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(gateway, length):
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: baton\r\ncontent-length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
        client.sendall(head.encode())
        answer = client.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 413 "), answer
    assert "larger than" in answer


def test_what_follows_a_refusal_has_a_bound(gateway):
    """A client that goes on sending for ever is cut off."""
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: baton\r\ncontent-length: {1 << 50}\r\n\r\n"
    chunk, sent = bytes(MIB), 0
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as client:
        client.sendall(head.encode())
        with pytest.raises(OSError):
            while sent < 1024 * MIB:
                client.sendall(chunk)
                sent += len(chunk)
    assert sent < 512 * MIB
    completion(gateway)


# --- connections


# With as few descriptors as some systems give to a service.
FEW = ["sh", "-c", 'ulimit -n 256 && exec "$0" "$@"']


@contextmanager
def crowd(port: int, clients: int):
    """Connections that are silent; those that the server closes are opened again, all the time."""
    def connect() -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
        client.setblocking(False)
        return client

    def is_closed(client: socket.socket) -> bool:
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def press():
        while not enough.wait(0.05):
            for at, client in enumerate(silent):
                if is_closed(client):
                    client.close()
                    silent[at] = connect()

    silent, enough = [connect() for _ in range(clients)], threading.Event()
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        yield
    finally:
        enough.set()
        pressing.join()
        [client.close() for client in silent]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_with_few_descriptors_engines_are_replaced_and_requests_served(tmp_path):
    with serve(tmp_path, *MOCK, "--decode", "2", prefix=FEW) as baton:
        pid = baton.process.pid
        assert "256" in [line.split()[3] for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line]
        with crowd(baton.port, 400):
            completion(baton)
            victim = baton.engine_pids()[0]
            os.kill(victim, signal.SIGKILL)
            eventually(lambda: baton.metric("baton_engine_restarts_total") == 1, "it is started again")
            eventually(lambda: baton.metric("baton_engine_up") == 2, "it is back")
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda _: completion(baton), range(64)))
            before, began = cpu_s(pid), time.monotonic()
            time.sleep(1)
            spent = (cpu_s(pid) - before) / (time.monotonic() - began)
            assert spent < 0.5, f"it spins: {spent:.0%} of a core with nothing to do"
            assert len(os.listdir(f"/proc/{pid}/fd")) <= 256
        log = baton.log.read_text()
        assert log.count("clients are connected, as many as there may be") == 1, log
        assert "Too many open files" not in log and log.count("cannot accept") == 0, log


# --- the port for KV


def kv_ports(pid: int, *known: int) -> list[int]:
    """Where this process listens besides the known ports."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            pass
    listening = "0A"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == listening and row[9] in inodes]
    return [port for port in ports if port not in known]


def until_closed(client: socket.socket, seconds: float) -> tuple[float, bytes]:
    """(seconds that it took, what was received)"""
    client.settimeout(seconds)
    began, heard = time.monotonic(), b""
    try:
        while more := client.recv(65536):
            heard += more
    except ConnectionResetError:
        pass
    return time.monotonic() - began, heard


def test_strangers_at_the_kv_port_are_turned_away_and_hand_offs_go_on(tmp_path):
    flags = [*DISAGG, "--prefill", "1", "--decode", "1", "--model-lib", "mock", "--enable-prefix-cache=false"]
    with serve(tmp_path, *flags) as pair, ExitStack() as stack:
        (pid,) = [pid for pid in pair.engine_pids() if "decode-0" in pair.engine_name(pid)]
        listening = kv_ports(pid)
        # The other one speaks HTTP and sessions.
        assert len(listening) == 2, listening
        prompt = list(range(5, 405))
        expected = completion(pair, prompt=prompt)["choices"]
        received = pair.metric("baton_handoffs_received_total")

        def connect(port: int) -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))

        # Only the port for KV speaks first.
        greeted = []
        for port in listening:
            client = connect(port)
            client.settimeout(1)
            try:
                greeted.append((port, client.recv(1024)))
            except TimeoutError:
                pass
        ((port, challenge),) = greeted
        silent = [connect(port) for _ in range(50)]
        trickling = connect(port)
        trickling.sendall(b"\x05")
        garbage = connect(port)
        garbage.sendall(struct.pack("<I", 1 << 30) + os.urandom(4096))
        assert completion(pair, prompt=prompt)["choices"] == expected
        took, heard = until_closed(garbage, 30)
        assert took < 5 and len(heard) <= 2 * len(challenge) + 64, "it is sent nothing"
        for client in [*silent, trickling]:
            took, heard = until_closed(client, 30)
            assert took < 15 and heard[:4] == challenge[:4] and len(heard) == len(challenge)
        assert completion(pair, prompt=prompt)["choices"] == expected
        eventually(lambda: pair.metric("baton_handoffs_received_total") == received + 2, "all were handed over")
        assert len(os.listdir(f"/proc/{pid}/fd")) < 40, "no connection has stayed"


# --- too little room for KV


def test_frequent_preemptions_are_a_warning_that_says_what_to_change(tmp_path):
    flags = ["--mock", "decode-ms=1", "--prefill", "0", "--kv-pages", "40"]
    with serve(tmp_path, *flags) as baton, ThreadPoolExecutor(16) as pool:
        warning = "KV pages run out"
        for _ in tries():
            list(pool.map(lambda user: completion(baton, prompt=[user] * 30, max_tokens=300), range(16)))
            if warning in baton.log.read_text():
                break
        else:
            raise AssertionError(f"no warning after {baton.metric('baton_preemptions_total')} preemptions")
        # It goes on, and is not logged again within the minute.
        preempted = baton.metric("baton_preemptions_total")
        began = time.monotonic()
        while time.monotonic() - began < 4:
            list(pool.map(lambda user: completion(baton, prompt=[user] * 30, max_tokens=300), range(16)))
        assert baton.metric("baton_preemptions_total") > preempted + 20
        log = baton.log.read_text()
        assert log.count(warning) == 1 and "--kv-memory" in log and "--max-slots" in log and "--decode" in log, log
