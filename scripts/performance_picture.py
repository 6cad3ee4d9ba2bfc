"""The picture of docs/performance.md: bars of the time to the first token and of the time per further token, as SVG.

scripts/performance.py draws it from bench/results.
"""
from decimal import Decimal
from html import escape

Bar = tuple[str, Decimal, Decimal, Decimal]  # unit, median, least, most
Group = tuple[str, str, dict[str, list[Bar]]]  # model, conditions, and for each server a bar of every column

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


def bar(x: float, y: float, server: str, figures: Bar, scale: float) -> list[str]:
    unit, median, least, most = figures
    length, begin, end = (round(float(value) * scale, 1) for value in (median, least, most))
    middle = y + BAR / 2
    return [
        f'  <rect class="{CLASSES[server]}" x="{x}" y="{y}" width="{length:g}" height="{BAR}" rx="2"/>',
        f'  <path class="range" d="M{x + begin:g} {middle:g}H{x + end:g}"/>',
        text(x + max(length, end) + 7, y + BAR - 4, f"{median} {unit}", "text strong" if server == "Baton" else "text"),
    ]


def draw(groups: list[Group]) -> str:
    lines = [
        text(24, 34, "Baton, llama.cpp and vLLM: two cores, two threads, one engine, over HTTP", "text strong"),
        text(24, 54, NOTE, "dim"),
        *(text(x, HEADINGS_Y, title, "text strong") for x, title in zip(BARS_X, COLUMNS)),
    ]
    y = HEADINGS_Y + 28
    for name, conditions, servers in groups:
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

