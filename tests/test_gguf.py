"""A GGUF file is served like any other model: here the bundled one, converted."""
import subprocess

import pytest

import storyteller_gguf
from deployment import BINARY, serve

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


def test_tokens_are_the_same(converted, baton):
    for prompt in [*PROMPTS, "naïve café — 東京 🙂\n\n  tabs\tand 1234.5"]:
        assert converted.tokens(prompt) == baton.tokens(prompt)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "seed": 7}])
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
