#!/usr/bin/env python3
"""Draws docs/images/performance.svg: time to the first token and time per further token, beside other servers.

    python3 scripts/plot_performance.py

The figures are those of docs/performance.md ("Beside other servers"), in its tables and under the picture: change all together.
"""
from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs/images/performance.svg"

# Model, conditions, and by server: first token after 512 tokens, each further token; each with its unit, median and range.
GROUPS = [
    ("100M bf16", "Sapphire Rapids with AMX, its speed changing between rounds, 2026-11-16", {
        "Baton": (("ms", "78", "67", "98"), ("ms", "7.5", "6.6", "7.7")),
        "llama.cpp": (("ms", "664", "655", "665"), ("ms", "14.8", "14.8", "15.0")),
        "vLLM": (("ms", "124", "94", "126"), ("ms", "19.9", "14.9", "20.7")),
    }),
    ("1B bf16, weights plain", "Sapphire Rapids with AMX, quiet, 2026-11-16", {
        "Baton": (("s", "0.528", "0.524", "0.535"), ("ms", "68.8", "68.7", "68.9")),
        "llama.cpp": (("s", "6.96", "6.93", "7.01"), ("ms", "113.0", "112.3", "114.0")),
        "vLLM": (("s", "0.662", "0.656", "0.664"), ("ms", "91.4", "90.4", "92.0")),
    }),
    ("SmolLM2-135M Q4_1", "Emerald Rapids with AMX, quiet, 2026-11-19", {
        "Baton": (("ms", "84.5", "79.9", "88.6"), ("ms", "2.70", "2.53", "2.91")),
        "llama.cpp": (("ms", "455", "440", "468"), ("ms", "12.9", "12.5", "13.2")),
    }),
    ("SmolLM2-135M Q4_1", "Cascade Lake without AMX, quiet, 2026-11-18", {
        "Baton": (("ms", "478", "465", "517"), ("ms", "6.56", "6.48", "6.62")),
        "llama.cpp": (("ms", "2603", "2521", "2663"), ("ms", "17.2", "16.5", "17.7")),
    }),
]
COLUMNS = ("First token after a prompt of 512", "Each further token")
NOTE = "Medians; the thin line is the range over all rounds. Shorter is better. Every group of bars has its own scale."
CLASSES = {"Baton": "baton", "llama.cpp": "llama", "vLLM": "vllm"}

WIDTH = 940
BARS_X = (112, 530)  # where the bars of each column begin
LONGEST = 250
HEADINGS_Y = 90
BAR, ROW, GAP = 16, 24, 26

STYLE = """
    .page { fill: #ffffff; stroke: #d5dde6 }
    .text { fill: #1d2733 } .dim { fill: #5a6b7d; font-size: 12px } .strong { font-weight: 600 }
    .axis { stroke: #9aa8b8 } .range { stroke: #1d2733; stroke-width: 1.5 }
    .baton { fill: #3f74c4 } .llama { fill: #e0a458 } .vllm { fill: #8fa3b5 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #10171f; stroke: #33404d }
      .text { fill: #e4ebf3 } .dim { fill: #9db0c4 }
      .axis { stroke: #5d6b7a } .range { stroke: #f2f6fa }
      .baton { fill: #5b93e6 } .llama { fill: #b9762b } .vllm { fill: #66788a }
    }
"""


def text(x: float, y: float, words: str, classes: str = "text") -> str:
    return f'  <text class="{classes}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def bar(x: float, y: float, server: str, figures: tuple[str, str, str, str], scale: float) -> list[str]:
    unit, median, least, most = figures
    length, begin, end = (round(float(value) * scale, 1) for value in (median, least, most))
    middle = y + BAR / 2
    return [
        f'  <rect class="{CLASSES[server]}" x="{x}" y="{y}" width="{length:g}" height="{BAR}" rx="2"/>',
        f'  <path class="range" d="M{x + begin:g} {middle:g}H{x + end:g}"/>',
        text(x + max(length, end) + 7, y + BAR - 4, f"{median} {unit}", "text strong" if server == "Baton" else "text"),
    ]


def draw() -> str:
    lines = [
        text(24, 34, "Baton, llama.cpp and vLLM: two cores, two threads, one engine, over HTTP", "text strong"),
        text(24, 54, NOTE, "dim"),
        *(text(x, HEADINGS_Y, title, "text strong") for x, title in zip(BARS_X, COLUMNS)),
    ]
    y = HEADINGS_Y + 28
    for name, conditions, servers in GROUPS:
        heading = f'{escape(name)}<tspan class="dim" dx="10">{escape(conditions)}</tspan>'
        lines.append(f'  <text class="text" x="24" y="{y}">{heading}</text>')
        first = y + 12
        for column, x in enumerate(BARS_X):
            scale = LONGEST / max(float(figures[column][3]) for figures in servers.values())
            for row, (server, figures) in enumerate(servers.items()):
                if column == 0:
                    lines.append(text(24, first + row * ROW + BAR - 4, server, "dim"))
                lines += bar(x, first + row * ROW, server, figures[column], scale)
            lines.append(f'  <path class="axis" d="M{x} {first - 4}V{first + len(servers) * ROW - 4}"/>')
        y = first + len(servers) * ROW + GAP
    height = y - GAP + 16
    label = "Time to first token and time per further token of Baton, llama.cpp and vLLM"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="14" role="img" aria-label="{label}">',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        *lines,
        "</svg>",
        "",
    ])


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
    print(TARGET)
