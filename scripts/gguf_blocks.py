"""Makes crates/model/tests/files/dequantized.safetensors: random blocks of every tensor type and the values that
llama.cpp's own Python package reads from them.

    pip install gguf safetensors
    python scripts/gguf_blocks.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGML_QUANT_SIZES
from gguf.quants import dequantize
from safetensors.numpy import save_file

TARGET = Path(__file__).parent.parent / "crates/model/tests/files/dequantized.safetensors"
VALUES = 512
# Where a block has half-precision numbers. Random bits there would be NaN or infinite now and then.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
# Zero, the smallest denormal number and large ones are among them.
SCALES = np.array([1e-2, -3e-3, 0.1234, 0.0, 6e-8, -31.0, 777.0, 5e-4], np.float16)


def blocks(name: str, random: np.random.Generator) -> np.ndarray:
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if name in ("F32", "BF16"):
        numbers = random.standard_normal(VALUES).astype(np.float32).view(np.uint8).reshape(VALUES, 4)
        return numbers[:, 4 - size :]
    rows = random.integers(0, 256, (VALUES // values, size), np.uint8)
    for offset in HALVES[name]:
        rows[:, offset : offset + 2] = random.choice(SCALES, len(rows)).reshape(-1, 1).view(np.uint8)
    return rows


def main() -> None:
    random = np.random.default_rng(5)
    tensors = {}
    for name in ("F32", "BF16", *HALVES):
        data = np.ascontiguousarray(blocks(name, random)).reshape(-1)
        qtype = GGMLQuantizationType[name]
        typed = data.view(np.float16) if name == "F16" else data.view(np.float32) if name == "F32" else data
        tensors[f"{name}.blocks"] = data
        tensors[f"{name}.values"] = np.ascontiguousarray(dequantize(typed, qtype), np.float32)
        assert tensors[f"{name}.values"].shape == (VALUES,) and np.isfinite(tensors[f"{name}.values"]).all()
    save_file(tensors, TARGET)


if __name__ == "__main__":
    main()
