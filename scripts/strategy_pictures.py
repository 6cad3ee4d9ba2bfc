#!/usr/bin/env python3
"""Draws docs/images/strategy-*.svg: what each strategy does with a few requests, engine by engine, from left to right in time."""
from pathlib import Path

IMAGES = Path(__file__).parent.parent / "docs/images"
LEFT, TOP, UNIT, ROW, GAP = 92, 14, 40, 22, 16
COLORS = {"A": "#2f6fde", "B": "#d9822b", "C": "#2a9d6f", "D": "#a24bc4"}
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #333; }
  .lane { fill: #f4f5f7; } .cached { fill: none; stroke-width: 1.5; stroke-dasharray: 3 3; } .on { fill: #fff; font-weight: 600; }
  .note { font-size: 12px; fill: #667; }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd; } .lane { fill: #23262c; } .on { fill: #fff; } .note { fill: #9aa; } }
"""


class Picture:
    """Lanes are engines, rows within a lane are sequences that run beside each other. Times are in units."""

    def __init__(self, name: str, lanes: dict[str, int], length: float = 15):
        self.name, self.length, self.parts, self.tops = name, length, [], {}
        top = TOP
        for lane, rows in lanes.items():
            self.tops[lane], height = top, rows * ROW + 8
            self.parts.append(f'<rect class="lane" x="{LEFT}" y="{top}" width="{length * UNIT}" height="{height}" rx="6"/>')
            self.parts.append(f'<text x="{LEFT - 10}" y="{top + height / 2 + 5}" text-anchor="end">{lane}</text>')
            top += height + GAP
        self.height = top

    def place(self, lane: str, row: int, at: float) -> tuple[float, float]:
        return LEFT + at * UNIT, self.tops[lane] + 4 + row * ROW

    def prompt(self, request: str, lane: str, row: int, begin: float, end: float, label: str | None = None):
        x, y = self.place(lane, row, begin)
        width = (end - begin) * UNIT
        self.parts.append(f'<rect x="{x}" y="{y + 2}" width="{width}" height="{ROW - 4}" rx="3" fill="{COLORS[request]}"/>')
        self.parts.append(f'<text class="on" x="{x + width / 2}" y="{y + 16}" text-anchor="middle">{label or request}</text>')
        return self

    def answer(self, request: str, lane: str, row: int, begin: float, end: float):
        steps = round((end - begin) / 0.3)
        for step in range(steps):
            x, y = self.place(lane, row, begin + step * 0.3)
            box = f'x="{x + 2}" y="{y + 6}" width="8" height="{ROW - 12}" rx="2"'
            self.parts.append(f'<rect {box} fill="{COLORS[request]}" opacity="0.55"/>')
        return self

    def cached(self, request: str, lane: str, row: int, begin: float, end: float):
        x, y = self.place(lane, row, begin)
        box = f'x="{x + 1}" y="{y + 3}" width="{(end - begin) * UNIT - 2}" height="{ROW - 6}" rx="3"'
        self.parts.append(f'<rect class="cached" {box} stroke="{COLORS[request]}"/>')
        return self

    def kv(self, request: str, source: tuple[str, int], target: tuple[str, int], begin: float, end: float):
        """Layer by layer, while it is computed."""
        x, y = self.place(*source, begin)
        to_x, to_y = self.place(*target, begin + 0.35)
        width, color = (end - begin) * UNIT, COLORS[request]
        down = to_y > y
        y, to_y = (y + ROW - 2, to_y + 4) if down else (y + 2, to_y + ROW - 4)
        points = f"{x},{y} {x + width},{y} {to_x + width},{to_y} {to_x},{to_y}"
        self.parts.append(f'<polygon points="{points}" fill="{color}" opacity="0.22"/>')
        self.parts.append(f'<text class="note" x="{(x + to_x + width) / 2}" y="{(y + to_y) / 2 + 4}" text-anchor="middle">KV</text>')
        return self

    def note(self, lane: str, row: int, at: float, text: str):
        x, y = self.place(lane, row, at)
        self.parts.append(f'<text class="note" x="{x}" y="{y + 16}">{text}</text>')
        return self

    def write(self):
        width = LEFT + self.length * UNIT + 12
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {self.height}" width="{width}" height="{self.height}">'
        body = "\n".join(self.parts)
        (IMAGES / f"strategy-{self.name}.svg").write_text(f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n")


def main():
    (Picture("data-parallel", {"engine 0": 2, "engine 1": 2})
        .prompt("A", "engine 0", 0, 0, 2).answer("A", "engine 0", 0, 2, 5).note("engine 0", 0, 5.3, "A stands still").answer("A", "engine 0", 0, 8.6, 12)
        .prompt("B", "engine 1", 0, 1, 2.5).answer("B", "engine 1", 0, 2.5, 11)
        .prompt("C", "engine 0", 1, 5, 8.5).answer("C", "engine 0", 1, 8.6, 14)).write()
    (Picture("least-loaded", {"engine 0": 2, "engine 1": 1})
        .prompt("A", "engine 0", 0, 0, 2).answer("A", "engine 0", 0, 2, 13)
        .prompt("B", "engine 1", 0, 0.5, 2).answer("B", "engine 1", 0, 2, 4)
        .prompt("C", "engine 1", 0, 5, 6.5).answer("C", "engine 1", 0, 6.5, 14)
        .note("engine 0", 1, 5, "has one more")).write()
    (Picture("prefix-aware", {"engine 0": 2, "engine 1": 1})
        .prompt("A", "engine 0", 0, 0, 3).answer("A", "engine 0", 0, 3, 9)
        .prompt("B", "engine 1", 0, 0.7, 3).answer("B", "engine 1", 0, 3, 12)
        .cached("C", "engine 0", 1, 2.2, 4.2).prompt("C", "engine 0", 1, 4.2, 5).answer("C", "engine 0", 1, 5, 12)
        .note("engine 0", 1, 0.05, "as A begins")).write()
    (Picture("session-affinity", {"engine 0": 1, "engine 1": 1})
        .prompt("A", "engine 0", 0, 0, 2).answer("A", "engine 0", 0, 2, 5).cached("A", "engine 0", 0, 7, 9.2).prompt("A", "engine 0", 0, 9.2, 9.9).answer("A", "engine 0", 0, 9.9, 13)
        .prompt("B", "engine 1", 0, 1, 2.4).answer("B", "engine 1", 0, 2.4, 7).cached("B", "engine 1", 0, 8, 10).prompt("B", "engine 1", 0, 10, 10.6).answer("B", "engine 1", 0, 10.6, 14)).write()
    (Picture("1p1d", {"prefill-0": 1, "decode-0": 2})
        .prompt("A", "prefill-0", 0, 0, 2).kv("A", ("prefill-0", 0), ("decode-0", 0), 0, 2).answer("A", "decode-0", 0, 2.5, 12)
        .prompt("C", "prefill-0", 0, 5, 8.5).kv("C", ("prefill-0", 0), ("decode-0", 1), 5, 8.5).answer("C", "decode-0", 1, 9, 14)).write()
    (Picture("xpyd", {"prefill-0": 1, "prefill-1": 1, "decode-0": 2, "decode-1": 1})
        .kv("B", ("prefill-1", 0), ("decode-1", 0), 1, 3).kv("A", ("prefill-0", 0), ("decode-0", 0), 0, 2).kv("C", ("prefill-0", 0), ("decode-0", 1), 5, 8)
        .prompt("A", "prefill-0", 0, 0, 2).prompt("B", "prefill-1", 0, 1, 3).prompt("C", "prefill-0", 0, 5, 8)
        .answer("A", "decode-0", 0, 2.5, 10).answer("B", "decode-1", 0, 3.5, 13).answer("C", "decode-0", 1, 8.5, 14)).write()
    (Picture("cache-aware", {"prefill-0": 1, "decode-0": 2})
        .cached("A", "decode-0", 1, 0, 2.3).note("decode-0", 1, 0.3, "held")
        .prompt("A", "prefill-0", 0, 1, 2.4, "A′").kv("A", ("prefill-0", 0), ("decode-0", 1), 2.4, 3.6).answer("A", "decode-0", 1, 4.3, 11)
        .answer("B", "decode-0", 0, 0.1, 12)).write()
    (Picture("balanced", {"prefill-0": 1, "decode-0": 2})
        .prompt("A", "prefill-0", 0, 0, 4).kv("A", ("prefill-0", 0), ("decode-0", 0), 0, 4).prompt("A", "decode-0", 0, 4.5, 5.5).answer("A", "decode-0", 0, 5.5, 12)
        .prompt("B", "prefill-0", 0, 4.1, 7.1).kv("B", ("prefill-0", 0), ("decode-0", 1), 4.1, 7.1).prompt("B", "decode-0", 1, 7.6, 8.4).answer("B", "decode-0", 1, 8.4, 14)).write()
    (Picture("context-migration", {"engine 0": 3, "engine 1": 1})
        .prompt("A", "engine 0", 0, 0, 2).answer("A", "engine 0", 0, 2, 5).answer("B", "engine 0", 1, 0.5, 14).answer("C", "engine 0", 2, 1, 14)
        .cached("A", "engine 0", 0, 6.5, 9).kv("A", ("engine 0", 2), ("engine 1", 0), 7.1, 8.6).prompt("A", "engine 1", 0, 9.1, 9.8).answer("A", "engine 1", 0, 9.8, 14)
        .note("engine 1", 0, 0.3, "less to do")).write()
    (Picture("auto", {"prefill-0": 1, "decode-0": 3})
        .prompt("A", "decode-0", 0, 0, 0.7).answer("A", "decode-0", 0, 0.7, 13)
        .prompt("B", "prefill-0", 0, 1.2, 5.2).kv("B", ("prefill-0", 0), ("decode-0", 1), 1.2, 5.2).answer("B", "decode-0", 1, 5.7, 14)
        .prompt("C", "prefill-0", 0, 5.3, 7.6).kv("C", ("prefill-0", 0), ("decode-0", 2), 5.3, 7.6).prompt("C", "decode-0", 2, 8.1, 8.9).answer("C", "decode-0", 2, 8.9, 14.5)
        .note("decode-0", 2, 0.1, "A short: here · B long: apart · C: split")).write()


if __name__ == "__main__":
    main()
