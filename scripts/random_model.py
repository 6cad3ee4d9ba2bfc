#!/usr/bin/env python3
"""Writes a Llama with random weights in bf16, to measure speed: as a Hugging Face directory, and the same weights as GGUF files.

    python3 -m venv .venv-bench && .venv-bench/bin/pip install numpy gguf
    .venv-bench/bin/python scripts/random_model.py 1b out/1b --gguf bf16 q8_0

Every id has a text of its own, so that a server streams one piece of text per token, whatever it samples.
"""

import argparse
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BUNDLED = Path(__file__).resolve().parent.parent / "models/storyteller-11m"
VOCAB = 32000
CONTEXT = 8192
ROPE_THETA = 500_000.0
NORM_EPS = 1e-5
KINDS = ["bf16", "q8_0", "q4_1"]


@dataclass
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int


SHAPES = {"100m": Shape(768, 12, 12, 4, 64, 2048), "1b": Shape(2048, 16, 32, 8, 64, 8192)}


def tensors(shape: Shape):
    """(Hugging Face name, GGUF name, shape), in the order of the file."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", "token_embd.weight", (VOCAB, shape.hidden)
    for layer in range(shape.layers):
        theirs, ours = f"model.layers.{layer}.", f"blk.{layer}."
        yield theirs + "self_attn.q_proj.weight", ours + "attn_q.weight", (q, shape.hidden)
        yield theirs + "self_attn.k_proj.weight", ours + "attn_k.weight", (kv, shape.hidden)
        yield theirs + "self_attn.v_proj.weight", ours + "attn_v.weight", (kv, shape.hidden)
        yield theirs + "self_attn.o_proj.weight", ours + "attn_output.weight", (shape.hidden, q)
        yield theirs + "mlp.gate_proj.weight", ours + "ffn_gate.weight", (shape.ffn, shape.hidden)
        yield theirs + "mlp.up_proj.weight", ours + "ffn_up.weight", (shape.ffn, shape.hidden)
        yield theirs + "mlp.down_proj.weight", ours + "ffn_down.weight", (shape.hidden, shape.ffn)
        yield theirs + "input_layernorm.weight", ours + "attn_norm.weight", (shape.hidden,)
        yield theirs + "post_attention_layernorm.weight", ours + "ffn_norm.weight", (shape.hidden,)
    yield "model.norm.weight", "output_norm.weight", (shape.hidden,)


def values(shape: Shape):
    """(Hugging Face name, GGUF name, bits of bf16), the same for every caller."""
    random = np.random.default_rng(0)
    for theirs, ours, dims in tensors(shape):
        x = np.ones(dims, np.float32) if len(dims) == 1 else random.standard_normal(dims, np.float32) * np.float32(0.02)
        bits = x.view(np.uint32)
        yield theirs, ours, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_safetensors(shape: Shape, path: Path) -> None:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, _, dims in tensors(shape):
        begin, end = end, end + 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, bits in values(shape):
            file.write(bits.tobytes())


def config(shape: Shape) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def tokenizer() -> dict:
    """The bundled one, and words that no text is cut into."""
    whole = json.loads((BUNDLED / "tokenizer.json").read_text())
    vocab = whole["model"]["vocab"]
    for token in range(len(vocab), VOCAB):
        vocab[f"Ġw{token}"] = token
    return whole


def write_gguf(shape: Shape, path: Path, kind: str) -> None:
    import gguf

    types = {name: gguf.GGMLQuantizationType[name.upper()] for name in KINDS}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(ROPE_THETA)
    writer.add_layer_norm_rms_eps(NORM_EPS)
    writer.add_vocab_size(VOCAB)
    words = tokenizer()
    special = {token["id"] for token in words["added_tokens"]}
    vocab = sorted(words["model"]["vocab"], key=words["model"]["vocab"].get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in words["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocab)
    writer.add_token_types([3 if token in special else 1 for token in range(VOCAB)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    for _, name, bits in values(shape):
        data = (bits.astype(np.uint32) << 16).view(np.float32)
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            # llama.cpp's rotary pairs are neighbours; ours are halves of a head.
            heads = data.shape[0] // shape.head_dim
            data = data.reshape(heads, 2, shape.head_dim // 2, shape.hidden).swapaxes(1, 2).reshape(data.shape)
        if data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, types[kind]), raw_dtype=types[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path, help="a directory; GGUF files go beside it")
    parser.add_argument("--gguf", nargs="*", choices=KINDS, default=[])
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    options.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(shape, options.out / "model.safetensors")
    (options.out / "config.json").write_text(json.dumps(config(shape), indent=1))
    (options.out / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False))
    (options.out / "tokenizer_config.json").write_text((BUNDLED / "tokenizer_config.json").read_text())
    for kind in options.gguf:
        path = options.out.with_name(f"{options.out.name}-{kind}.gguf")
        write_gguf(shape, path, kind)
        print(path)
    print(options.out)


if __name__ == "__main__":
    main()
