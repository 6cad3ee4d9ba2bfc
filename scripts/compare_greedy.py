#!/usr/bin/env python3
"""Compares greedy continuations with llama.cpp's, over HTTP, from the same GGUF file: one engine computes the prompts and
another decodes.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install xllamacpp
    cargo build --release
    .venv-golden/bin/python scripts/compare_greedy.py path/to/SmolLM2-135M-Instruct.Q4_1.gguf

Prompts are raw ChatML, without the template's system prompt. It fails when fewer than nine of ten continuations agree in
their first 16 tokens.
"""

import argparse
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import xllamacpp

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 16
# Where the model has made up its mind: transformers in f32 prefers each of the 16 tokens by at least 0.2 nats. Elsewhere
# rounding decides, and llama.cpp rounds activations to 8 bits.
QUESTIONS = [
    "What is the capital of France?",
    "Translate 'good morning' into Spanish.",
    "What is the capital of Germany?",
    "What is the capital of Japan?",
    "What is the capital of Italy?",
    "What is the capital of Spain?",
    "Who painted the Mona Lisa?",
    "What is the chemical symbol for water?",
    "What is the opposite of hot?",
    "Hello! How are you?",
]


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def ours(baton: Path, model: Path, products: str, prompts: list[str]) -> list[str]:
    command = [baton, "serve", model, "--prefill", "1", "--decode", "1", "--products", products, "--router-port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        body = {"max_tokens": TOKENS, "temperature": 0}
        answers = [post(f"{url}/v1/completions", {"prompt": prompt, **body}) for prompt in prompts]
        return [answer["choices"][0]["text"] for answer in answers]
    finally:
        server.terminate()
        server.wait()


def theirs(model: Path, prompts: list[str]) -> list[str]:
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    body = {"n_predict": TOKENS, "temperature": 0, "cache_prompt": False}
    return [post(f"{server.listening_address}/completion", {"prompt": prompt, **body})["content"] for prompt in prompts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--baton", type=Path, default=ROOT / "target/release/baton")
    parser.add_argument("--products", default="auto", help="auto, float, integer or both")
    options = parser.parse_args()
    prompts = [f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in QUESTIONS]
    pairs = list(zip(ours(options.baton, options.model, options.products, prompts), theirs(options.model, prompts)))
    same = sum(ours == theirs for ours, theirs in pairs)
    for question, (ours_, theirs_) in zip(QUESTIONS, pairs):
        print(f"{question}\n  {ours_!r}" + ("" if ours_ == theirs_ else f"\n  llama.cpp: {theirs_!r}"))
    print(f"{same} of {len(pairs)} agree")
    if same < 9:
        sys.exit("too few")


if __name__ == "__main__":
    main()
