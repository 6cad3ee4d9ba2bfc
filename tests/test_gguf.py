"""A GGUF file is served like any other model: here the bundled one, converted."""
import mmap
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import storyteller_gguf
from deployment import BINARY, eventually, serve

PROMPTS = ["Once upon a time", "The fox said: \"I have 23 apples", "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return storyteller_gguf.write(tmp_path_factory.mktemp("gguf") / "storyteller.gguf")


@pytest.fixture(scope="module")
def converted(file, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("converted"), str(file)) as deployment:
        yield deployment


def test_it_has_the_name_of_its_file(converted):
    _, models = converted.call("/v1/models")
    assert [model["id"] for model in models["data"]] == ["storyteller"]


def test_sampling_defaults_are_in_the_file(converted, baton):
    ours, theirs = (server.call("/v1/models")[1]["data"][0]["default_sampling"] for server in (converted, baton))
    # How long a chat's answer may be is not in it.
    assert ours == theirs | {"max_new_tokens": None}
    assert (ours["temperature"], ours["source"]) == (0.7, "model")


def test_tokens_are_the_same(converted, baton):
    for prompt in [*PROMPTS, "naïve café — 東京 🙂\n\n  tabs\tand 1234.5"]:
        assert converted.tokens(prompt) == baton.tokens(prompt)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "top_p": 0.8, "seed": 7}, {"seed": 8}])
def test_answers_are_the_same_to_the_byte(converted, baton, sampling):
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": 48, "logprobs": 3, **sampling}
        (status, ours), (_, theirs) = converted.call("/v1/completions", body), baton.call("/v1/completions", body)
        assert status == 200, ours
        assert ours["choices"] == theirs["choices"]


def test_it_chats_through_its_own_template(converted, baton):
    body = {"messages": [{"role": "user", "content": "Tell me about a cat."}], "temperature": 0, "max_tokens": 32}
    (_, ours), (_, theirs) = (server.call("/v1/chat/completions", body) for server in (converted, baton))
    assert ours["choices"] == theirs["choices"]


def resident_kb_of(file, pid: int) -> int:
    """Of a mapped file."""
    maps = re.split(r"^(?=[0-9a-f]+-)", Path(f"/proc/{pid}/smaps").read_text(), flags=re.MULTILINE)
    of_file = [entry for entry in maps if str(file) in entry.partition("\n")[0]]
    return sum(int(re.search(r"Rss:\s+(\d+)", entry)[1]) for entry in of_file)


def test_looking_tokens_up_keeps_nothing_of_the_file_in_memory(converted, file):
    body = {"prompt": [token * 7 % 4000 for token in range(400)], "max_tokens": 8, "temperature": 0}
    status, answer = converted.call("/v1/completions", body)
    assert status == 200, answer
    processes = [converted.process.pid, *converted.engine_pids()]
    assert len(processes) > 1 and [resident_kb_of(file, pid) for pid in processes] == [0] * len(processes)
    # A map that is read is found so.
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert any(mapped[:: mmap.PAGESIZE]) and resident_kb_of(file, os.getpid()) > 0


def test_a_file_that_shrinks_while_it_is_served_loses_no_request(file, tmp_path):
    whole, served = file.read_bytes(), tmp_path / "served.gguf"
    served.write_bytes(whole)
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    with serve(tmp_path, str(served)) as deployment, ThreadPoolExecutor() as pool:
        expected = deployment.call("/v1/completions", body)[1]["choices"]
        os.truncate(served, 1000)
        waiting = pool.submit(deployment.call, "/v1/completions", body)
        reason = "cannot look up a token in the model's file"
        eventually(lambda: reason in deployment.log.read_text(), "an engine that logs why it stopped")
        # At once: an engine that starts meanwhile must not meet half of it.
        (tmp_path / "whole.gguf").write_bytes(whole)
        os.replace(tmp_path / "whole.gguf", served)
        status, answer = waiting.result()
        assert status == 200, answer
        assert answer["choices"] == expected


def refusal(path) -> str:
    run = subprocess.run([BINARY, "serve", path, "--router-port", "0"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2, run
    return run.stderr


def test_a_file_that_was_cut_off_is_one_clear_error(file, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(file.read_bytes()[:1_000_000])
    assert "lie outside of the file; was it cut off?" in refusal(broken)
    broken.write_bytes(file.read_bytes()[:100])
    assert "was it cut off?" in refusal(broken)
    broken.write_bytes(b"PK\3\4" + bytes(1000))
    assert "broken.gguf: not a GGUF file" in refusal(broken)
