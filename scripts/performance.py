#!/usr/bin/env python3
"""Writes the tables and the picture of docs/performance.md from the measurements in bench/results.

    python3 scripts/performance.py            # after a change there, or a new measurement
    python3 scripts/performance.py --check    # exits 1 if the page or the picture is not what bench/results gives

A table of the page stands below its `<!-- table: NAME -->`. This script says which results it shows.
"""
import json
import re
import sys
from decimal import Decimal
from difflib import unified_diff
from pathlib import Path

import performance_picture

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
PAGE = ROOT / "docs/performance.md"
PICTURE = ROOT / "docs/images/performance.svg"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(?:\|.*\n)*")

FIRST, FURTHER = "first token after 512 tokens", "each further token"
QUIET_100M, QUIET_1B = "2026-11-19-emerald-rapids-vllm-100m", "2026-11-19-emerald-rapids-vllm-1b"
SERVERS_AMX, SERVERS_AVX = "2026-11-16-sapphire-rapids-servers", "2026-11-16-cascade-lake-servers"
QUANTIZED_AMX, QUANTIZED_AVX = "2026-11-19-emerald-rapids-llama.cpp-smollm2", "2026-11-18-cascade-lake-llama.cpp-smollm2"
STEPS = "2026-11-19-emerald-rapids-steps"
COMPACT_AMX, COMPACT_AVX = "2026-11-16-sapphire-rapids-weights-in-12-bits", "2026-11-19-cascade-lake-weights-in-12-bits"
INTEGER_AMX, INTEGER_AVX = "2026-11-17-emerald-rapids-float-and-integer", "2026-11-16-cascade-lake-float-and-integer"
WEIGHTS = {"plain": "--weights plain", "12 bits": "--weights compact"}
PRODUCTS = {"float": "--products float", "integer": "--products integer"}
SMOLLM2_SHAPE = "SmolLM2's shape in Q4_1, random weights, a vocabulary of 8192"


def read(name: str) -> dict:
    """A file of bench/results. Decimals keep the digits that were written: 2.70 stays 2.70."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"), parse_float=Decimal)


def find(file: str, model: str, measure: str, **where: object) -> dict:
    """The first result of a file that has all of these. A file lists runs of one kind with the quietest first."""
    wanted = {"model": model, "measure": measure, **where}
    for result in read(file)["results"]:
        if all(result.get(key) == value for key, value in wanted.items()):
            return result
    raise SystemExit(f"bench/results/{file}.json has no result with {wanted}")


def number(value: int | Decimal) -> str:
    return f"{value:,}" if value >= 10000 else str(value)


def span(figure: dict) -> str:
    return " ({} – {})".format(*map(number, figure["range"])) if "range" in figure else ""


def plain(figure: dict, unit: str = "") -> str:
    return f"{number(figure['median'])}{unit}{span(figure)}"


def strong(figure: dict, unit: str = "") -> str:
    return f"**{number(figure['median'])}**{unit}{span(figure)}"


def times(figure: dict | None) -> str:
    return f"{figure['median']}×{span(figure)}" if figure else ""


def place(file: str) -> str:
    run = read(file)
    return f"{read('machines')[run['machine']]['name']}, {run['date']}"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *rows])


def machines() -> str:
    return table(["machine", "what it is"], [[machine["name"], machine["what"]] for machine in read("machines").values()])


def beside_servers() -> str:
    """One user; a row for each model, machine and other server."""
    shown = [
        ("100M bf16", "100M bf16", "Baton", "llama.cpp", "2026-11-19-emerald-rapids-llama.cpp-100m", "llama.cpp"),
        ("100M bf16", "100M bf16", "Baton", "vLLM", QUIET_100M, "vLLM"),
        ("1B bf16, `--weights plain`", "1B bf16", "Baton, plain", "vLLM", QUIET_1B, "Baton, plain than vLLM"),
        ("1B bf16, `--weights compact`", "1B bf16", "Baton, 12 bits", "vLLM", QUIET_1B, "Baton, 12 bits than vLLM"),
        ("1B bf16, `--weights plain`", "1B bf16", "Baton", "llama.cpp", SERVERS_AMX, "llama.cpp"),
        ("SmolLM2 Q4_1", "SmolLM2-135M Q4_1", "Baton", "llama.cpp", QUANTIZED_AMX, "llama.cpp"),
        ("1B Q8_0", "1B Q8_0", "Baton", "llama.cpp", "2026-11-19-emerald-rapids-llama.cpp-1b-q8_0", "llama.cpp"),
        ("SmolLM2 Q4_1, no AMX", "SmolLM2-135M Q4_1", "Baton", "llama.cpp", QUANTIZED_AVX, "llama.cpp"),
        ("100M bf16, no AMX", "100M bf16", "Baton", "vLLM", SERVERS_AVX, "vLLM"),
    ]
    rows = []
    for title, model, ours, other, file, ratio in shown:
        cells = [f"{title}: {place(file)}", other]
        for measure in (FIRST, FURTHER):
            result = find(file, model, measure)
            unit, figures = f" {result['unit']}", result["figures"]
            cells += [strong(figures[ours], unit), plain(figures[other], unit), times(result["faster"][ratio])]
        rows.append(cells)
    return table(["", "beside", "Baton: first token", "the other", "faster by", "Baton: each further", "the other", "faster by"], rows)


def many_users() -> str:
    rows = []
    for file, users, tokens_out, vllm in [
        (QUIET_100M, 8, 64, ""), (QUIET_100M, 32, 64, ""),
        (f"{QUIET_100M}-as-installed", 32, 64, ", vLLM as installed"),
        (SERVERS_AVX, 8, 32, ", no AMX"),
    ]:
        load = f"{users} users, 64 in and {tokens_out} out"
        each, together = (find(file, "100M bf16", f"{load}, {what}") for what in ("time per token", "throughput"))
        rows.append([
            f"{users} users: {place(file)}{vllm}", strong(each["figures"]["Baton"], " ms"), plain(each["figures"]["vLLM"], " ms"),
            times(each["faster"]["vLLM"]), strong(together["figures"]["Baton"]), plain(together["figures"]["vLLM"]),
        ])
    return table(["100M bf16", "Baton: per token", "vLLM", "faster by", "Baton: tokens/s", "vLLM"], rows)


def beside_ceilings() -> str:
    models = [("100M bf16", "plain"), ("1B bf16", "plain"), ("1B bf16", "12 bits"), ("SmolLM2-135M Q4_1", "quantized")]
    lines = [
        ("tiles, GFLOP/s", "ceiling: bf16 on tiles", None), ("memory, GB/s", "ceiling: read of as much as the weights", None),
        ("prefill of 512 tokens", "prefill of 512 tokens", "share of the tiles' peak"),
        *((f"decode, batch {batch}", f"decode, batch {batch}", "share of the floor") for batch in (1, 8, 32)),
    ]
    rows = []
    for title, measure, share in lines:
        cells = [title]
        for model, weights in models:
            result = find(STEPS, model, measure, weights=weights)
            if share is None:
                cells.append(plain(result["figures"]["machine"]))
            else:
                percent = find(STEPS, model, f"{measure}, {share}", weights=weights)["figures"]["Baton"]
                cells.append(f"{strong(result['figures']['Baton'])}: {plain(percent, ' %')}")
        rows.append(cells)
    return table(["tokens/s: share of the ceiling", "100M bf16", "1B bf16, plain", "1B bf16, compact", "SmolLM2 Q4_1"], rows)


def settings() -> str:
    measures = ("prefill of 512 tokens", "decode, batch 1", "decode, batch 8", "decode, batch 32")
    rows = []
    for title, file, model, where, choices in [
        ("1B bf16, AMX", COMPACT_AMX, "1B bf16", {}, WEIGHTS),
        ("1B bf16, no AMX", COMPACT_AVX, "1B bf16", {}, WEIGHTS),
        ("SmolLM2's shape in Q4_1, AMX", INTEGER_AMX, SMOLLM2_SHAPE, {"threads": 2}, PRODUCTS),
        ("SmolLM2 Q4_1, no AMX", INTEGER_AVX, "SmolLM2-135M Q4_1", {"isa": "AVX-512"}, PRODUCTS),
    ]:
        results = [find(file, model, measure, **where) for measure in measures]
        best = max if results[0]["unit"] == "tokens/s" else min
        for key, option in choices.items():
            cells = [f"{title}, {results[0]['unit']}: `{option}`"]
            for result in results:
                figures = result["figures"]
                fastest = figures[key]["median"] == best(figures[each]["median"] for each in choices)
                cells.append(strong(figures[key]) if fastest else plain(figures[key]))
            rows.append(cells)
    return table(["", *measures], rows)


def parts() -> str:
    tokenizer, hand_off, router = (f"2026-11-{day}-sapphire-rapids-{what}" for day, what in [(15, "tokenizer"), (16, "hand-off"), (15, "router")])
    rows = []
    result = find(tokenizer, "Llama 3 (128 k)", "text per second")
    rows.append([
        "tokenizer of Llama 3, MB/s", strong(result["figures"]["Baton"]),
        f"`tokenizers`: {plain(result['figures']['tokenizers'])}", f"{result['faster']['tokenizers']['median']}×",
    ])
    model = "512 MiB of KV pages of a Llama of 1B"
    for title, ours, ceiling in [
        ("hand-off by shared memory, GB/s", "shared memory: checksum, offer, copy and verify", "memcpy, one thread"),
        ("hand-off by tcp, GB/s", "tcp: checksum, send, receive and verify", "plain loopback TCP"),
    ]:
        result, beside = find(hand_off, model, ours), find(hand_off, model, ceiling)
        rows.append([
            title, strong(result["figures"]["Baton"]), f"{ceiling}: {plain(beside['figures']['machine'])}", f"{result['share_percent']['median']} %",
        ])
    alone = find(router, "one engine over HTTP, no router", "first token, one user")["figures"]["Baton"]
    routed = find(router, "prefill and decode engine, router before them", "first token, one user")["figures"]["Baton"]
    rows.append(["router, prefill and decode engine: first token, ms", strong(routed), f"an engine without router: {plain(alone)}", ""])
    return table(["part", "Baton", "beside", ""], rows)


TABLES = {
    "machines": machines, "servers": beside_servers, "users": many_users, "ceilings": beside_ceilings,
    "settings": settings, "parts": parts,
}


def picture() -> str:
    """Runs in which all servers took part, or the quietest ones."""
    groups = []
    for model, title, conditions, file in [
        ("100M bf16", "100M bf16", "with AMX, its speed changing between rounds", SERVERS_AMX),
        ("1B bf16", "1B bf16, weights plain", "with AMX, quiet", SERVERS_AMX),
        ("SmolLM2-135M Q4_1", "SmolLM2-135M Q4_1", "with AMX, quiet", QUANTIZED_AMX),
        ("SmolLM2-135M Q4_1", "SmolLM2-135M Q4_1", "without AMX, quiet", QUANTIZED_AVX),
    ]:
        results = [find(file, model, measure) for measure in (FIRST, FURTHER)]
        servers = {
            server: [(result["unit"], result["figures"][server]["median"], *result["figures"][server]["range"]) for result in results]
            for server in results[0]["figures"]
        }
        machine, _, date = place(file).partition(", ")
        groups.append((title, f"{machine} {conditions}, {date}", servers))
    return performance_picture.draw(groups)


def difference(path: Path, wanted: str) -> str:
    found = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    return "".join(unified_diff(found.splitlines(True), wanted.splitlines(True), name, "from bench/results"))


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = TABLES.keys() - {match[2] for match in BLOCK.finditer(page)}
    if missing:
        raise SystemExit(f"docs/performance.md has no place for {', '.join(sorted(missing))}")
    wanted = {
        PAGE: BLOCK.sub(lambda match: match[1] + TABLES[match[2]](), page),
        PICTURE: picture(),
    }
    if "--check" in sys.argv[1:]:
        differences = [difference(path, text) for path, text in wanted.items()]
        print("".join(differences) or "docs/performance.md and its picture are what bench/results gives")
        sys.exit(any(differences))
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
