"""The bundled model as a GGUF file, the way llama.cpp's converter would write it."""
import json
import struct
from array import array
from pathlib import Path

MODEL = Path(__file__).parent.parent / "models/storyteller-11m"
ALIGNMENT = 32
Q8_0, BF16 = 8, 30
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5

NAMES = [
    ("model.layers.", "blk."), ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
    ("post_attention_layernorm", "ffn_norm"), ("input_layernorm", "attn_norm"), ("self_attn.o_proj", "attn_output"),
    ("self_attn.", "attn_"), ("mlp.", "ffn_"), ("_proj", ""),
]  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def texts(key: str, values: list[str]) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def metadata() -> list[bytes]:
    config = json.loads((MODEL / "config.json").read_text())
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda entry: entry[1])
    special = {token["id"] for token in tokenizer["added_tokens"]}
    types = [3 if id in special else 1 for _, id in vocabulary]
    template = json.loads((MODEL / "tokenizer_config.json").read_text())["chat_template"]
    sampling = json.loads((MODEL / "generation_config.json").read_text())
    number = lambda key, value: pair(f"llama.{key}", U32, struct.pack("<I", value))
    return [
        pair("general.architecture", STRING, text("llama")),
        number("embedding_length", config["hidden_size"]),
        number("block_count", config["num_hidden_layers"]),
        number("attention.head_count", config["num_attention_heads"]),
        number("attention.head_count_kv", config["num_key_value_heads"]),
        number("feed_forward_length", config["intermediate_size"]),
        number("context_length", config["max_position_embeddings"]),
        number("rope.dimension_count", config["head_dim"]),
        pair("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", config["rms_norm_eps"])),
        pair("llama.rope.freq_base", F32, struct.pack("<f", config["rope_theta"])),
        pair("general.sampling.temp", F32, struct.pack("<f", sampling["temperature"])),
        pair("general.sampling.top_p", F32, struct.pack("<f", sampling["top_p"])),
        pair("tokenizer.ggml.model", STRING, text("gpt2")),
        pair("tokenizer.ggml.pre", STRING, text("smollm")),
        texts("tokenizer.ggml.tokens", [token for token, _ in vocabulary]),
        pair("tokenizer.ggml.token_type", ARRAY, struct.pack(f"<IQ{len(types)}i", I32, len(types), *types)),
        texts("tokenizer.ggml.merges", [" ".join(merge) for merge in tokenizer["model"]["merges"]]),
        pair("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", config["bos_token_id"])),
        pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2)),
        pair("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        pair("tokenizer.chat_template", STRING, text(template)),
    ]


def tensors():
    """(name, sizes with the fastest first, bytes)"""
    file = (MODEL / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    data = file[8 + length :]
    for name, entry in json.loads(file[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        weights = data[begin:end]
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weights = pairs_together(weights, *entry["shape"])
        for old, new in NAMES:
            name = name.replace(old, new)
        yield name, entry["shape"][::-1], weights


def pairs_together(weights: bytes, rows: int, columns: int, head_dim: int = 64) -> bytes:
    """Rows that are rotated together, half a head apart, become neighbours."""
    row = lambda index: weights[index * columns * 2 : (index + 1) * columns * 2]
    half = head_dim // 2
    order = [head + i // 2 + i % 2 * half for head in range(0, rows, head_dim) for i in range(head_dim)]
    return b"".join(map(row, order))


def eight_bits(weights: bytes) -> bytes:
    """From bf16: for each 32 a scale and codes."""
    values = array("f", array("I", (half << 16 for half in array("H", weights))).tobytes())
    blocks = []
    for first in range(0, len(values), 32):
        block = values[first : first + 32]
        scale = max(map(abs, block)) / 127 or 1.0
        blocks.append(struct.pack("<e32b", scale, *(round(value / scale) for value in block)))
    return b"".join(blocks)


def write(path: Path, quantized: str | None = None) -> Path:
    """Matrices whose names end in `quantized` in Q8_0, the others as they are."""
    pairs, table, data = metadata(), b"", b""
    all_tensors = list(tensors())
    for name, sizes, weights in all_tensors:
        is_quantized = quantized is not None and name.endswith(quantized)
        weights, kind = (eight_bits(weights), Q8_0) if is_quantized else (weights, BF16)
        table += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, len(data))
        data += weights + bytes(-len(weights) % ALIGNMENT)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(pairs)) + b"".join(pairs) + table
    path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + data)
    return path
