#!/usr/bin/env python3
"""Measures one mock engine with `baton bench serve` and with aiperf, in turns, and fails where they are more than 5 % apart.

    python3 -m venv .aiperf && .aiperf/bin/pip install aiperf
    scripts/agree_with_aiperf.py --aiperf .aiperf/bin/aiperf
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOCK = "prefill-ms=200,decode-ms=20"
INPUT, OUTPUT, WARMUP = 256, 50, 4
MOST_APART = 0.05
# By name: options of ours, requests and options of theirs. They count the time after the last request as well, until its answer
# is there: a run must be long.
LOADS = {
    "1 user": (["--users", "1", "--requests", "24", "--warmup", WARMUP], 20, ["--concurrency", "1"]),
    "2 requests/s": (
        ["--rate", "2", "--arrivals", "constant", "--duration", "62s", "--warmup", "2s"],
        120,
        ["--request-rate", "2", "--arrival-pattern", "constant"],
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=Path, default=ROOT / "target/release/baton")
    parser.add_argument("--aiperf", type=Path, default=Path("aiperf"))
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "models/storyteller-11m")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, mock(options.baton) as url:
        agree = all([compare(options, name, url, Path(folder)) for name in LOADS])
    sys.exit(0 if agree else 1)


def compare(options, load: str, url: str, folder: Path) -> bool:
    ours, theirs = [], []
    for number in range(options.rounds):
        ours.append(baton(options, load, url, folder / "ours.json", number))
        theirs.append(aiperf(options, load, url, folder / f"{number}-{load[0]}", number))
        print(f"{load}, round {number + 1} of {options.rounds}: {ours[-1]}, {theirs[-1]}", file=sys.stderr, flush=True)
    print(f"\n{load}: median (range)")
    print("| | baton bench serve | aiperf | ratio |\n|---|---|---|---|")
    worst = 0
    for at, name in enumerate(["median TTFT, ms", "requests/s", "output tokens/s"]):
        columns = [[numbers[at] for numbers in rounds] for rounds in (ours, theirs)]
        ratio = statistics.median(a / b for a, b in zip(*columns))
        worst = max(worst, abs(ratio - 1))
        print(f"| {name} | {spread(columns[0])} | {spread(columns[1])} | {ratio:.3f} |", flush=True)
    return worst <= MOST_APART


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} – {max(values):.4g})"


def baton(options, load: str, url: str, saved: Path, seed: int):
    arrivals, _, _ = LOADS[load]
    command = [options.baton, "bench", "serve", "--url", url, "--input", INPUT, "--output", OUTPUT, "--seed", seed]
    run([*command, "--json", saved, *arrivals], {})
    summary = json.loads(saved.read_text())["summary"]
    throughput = summary["throughput"]
    return summary["ttft_ms"]["p50"], throughput["requests_per_s"], throughput["output_tokens_per_s"]


def aiperf(options, load: str, url: str, folder: Path, seed: int):
    _, requests, arrivals = LOADS[load]
    command = [options.aiperf, "profile", "--url", url, "--model", "mock", "--tokenizer", options.tokenizer.resolve()]
    command += ["--endpoint-type", "completions", "--streaming", "--extra-inputs", "ignore_eos:true", "--use-server-token-count"]
    command += ["--prompt-input-tokens-mean", INPUT, "--prompt-input-tokens-stddev", 0]
    command += ["--prompt-output-tokens-mean", OUTPUT, "--prompt-output-tokens-stddev", 0]
    command += ["--request-count", requests, "--warmup-request-count", WARMUP, "--num-dataset-entries", requests + WARMUP]
    command += ["--random-seed", seed, "--output-artifact-dir", folder, *arrivals]
    command += ["--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"]
    # The tokenizer is a directory: no hub is needed, and none is contacted. (Where HF_HUB_OFFLINE is set, aiperf takes no directories.)
    run(command, {"HF_ENDPOINT": "http://127.0.0.1:9"})
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    throughput = [found[name]["avg"] for name in ("request_throughput", "output_token_throughput")]
    return found["time_to_first_token"]["p50"], *throughput


def run(command: list, environment: dict):
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"} | environment
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


class mock:
    """A mock engine over HTTP. Without a prefix cache: a prompt takes its time, also if both tools should send the same one."""

    def __init__(self, binary: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        command = [binary, "engine", "--mock", MOCK, "--listen", address, "--no-engine-auth", "--enable-prefix-cache=false"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> str:
        for _ in range(100):
            try:
                urllib.request.urlopen(self.url + "/ready", timeout=2)
                return self.url
            except OSError:
                time.sleep(0.1)
        sys.exit("the mock engine did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(15)


if __name__ == "__main__":
    main()
