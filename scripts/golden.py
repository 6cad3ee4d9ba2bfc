#!/usr/bin/env python3
"""Writes what Hugging Face transformers computes, for crates/cpu/tests/golden.rs to compare with.

Run by hand when an architecture or a case is added; the files it writes are committed:

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install torch transformers
    .venv-golden/bin/python scripts/golden.py

Into crates/cpu/tests/golden/<name>/ go a tiny random model (config.json, model.safetensors; the bundled model is not
copied) and golden.safetensors with `tokens` [n], `positions` [p] and `logits` [p, vocab]: the logits after each of those
positions, computed in f32 from the weights as they are stored. A second run gives the same models; logits may differ in
the last bits from one version of torch to the next.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "crates/cpu/tests/golden"
BUNDLED = ROOT / "models/storyteller-11m"

# Both sides of a KV page (32) and of an attention block (256), and the ends.
POSITIONS = [0, 1, 31, 32, 33, 63, 100, 255, 256, 299]
TOKENS = POSITIONS[-1] + 1

# Sizes that are no multiple of a vector, more heads than fit hidden_size, GQA, all biases, both heads.
TINY = {
    "llama-llama3-biases": (
        LlamaForCausalLM,
        torch.float32,
        LlamaConfig(
            hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, vocab_size=131, max_position_embeddings=512, rms_norm_eps=1e-5, attention_bias=True,
            mlp_bias=True, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
            rope_parameters={
                "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            },
        ),
    ),
    "llama-linear-tied": (
        LlamaForCausalLM,
        torch.float16,
        LlamaConfig(
            hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            vocab_size=128, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        ),
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        torch.bfloat16,
        Qwen2Config(
            hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
            vocab_size=128, max_position_embeddings=512, tie_word_embeddings=False, use_sliding_window=False,
            bos_token_id=1, eos_token_id=[2, 3], rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        torch.bfloat16,
        Qwen3Config(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=24, vocab_size=128, max_position_embeddings=512, tie_word_embeddings=True, use_sliding_window=False,
            bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
    ),
}


def randomize(model: torch.nn.Module) -> None:
    """Weights that matter: no norm is 1, no bias is 0, and attention is neither flat nor one-hot."""
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape)
        if "norm" in name:
            weight.data = 1 + 0.3 * noise
        elif name.endswith("bias"):
            weight.data = 0.3 * noise
        elif "embed" in name:
            weight.data = 0.25 * noise
        else:
            weight.data = 1.5 * noise / weight.shape[1] ** 0.5


def with_transformers_4_names(config: dict) -> dict:
    """Half of the models in the world are spelled this way."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope["rope_theta"]
    config["rope_scaling"] = {"type": rope["rope_type"], "factor": rope["factor"]}
    del config["head_dim"], config["num_key_value_heads"]
    return config


def write_tiny(name: str, model_class, dtype: torch.dtype, config) -> Path:
    directory = GOLDEN / name
    config.dtype = dtype
    model = model_class(config).float()
    randomize(model)
    model.to(dtype).save_pretrained(directory)
    for extra in directory.glob("generation_config.json"):
        extra.unlink()
    if name == "llama-linear-tied":
        path = directory / "config.json"
        path.write_text(json.dumps(with_transformers_4_names(json.loads(path.read_text())), indent=2) + "\n")
    return directory


def write_golden(model, tokens: torch.Tensor, positions: list[int], directory: Path) -> None:
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {
            "tokens": tokens.to(torch.int32),
            "positions": torch.tensor(positions, dtype=torch.int32),
            "logits": logits[positions].float().contiguous(),
        },
        directory / "golden.safetensors",
    )
    print(f"{directory.name}: logits of {logits.std():.2f} standard deviation, largest {logits.abs().max():.2f}")


def open_f32(directory: Path):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


def main() -> None:
    for seed, (name, (model_class, dtype, config)) in enumerate(TINY.items()):
        torch.manual_seed(seed)
        directory = write_tiny(name, model_class, dtype, config)
        tokens = torch.randint(0, config.vocab_size, (TOKENS,))
        write_golden(open_f32(directory), tokens, POSITIONS, directory)

    model = open_f32(BUNDLED)
    prompt = AutoTokenizer.from_pretrained(BUNDLED)("Once upon a time there was a little fox", return_tensors="pt")
    story = model.generate(**prompt, do_sample=False, min_new_tokens=TOKENS, max_new_tokens=TOKENS)[0, :TOKENS]
    write_golden(model, story, [0, 32, 63, 256, 299], GOLDEN / BUNDLED.name)


if __name__ == "__main__":
    main()
