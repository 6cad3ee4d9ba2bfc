"""`baton bench` and `baton chat` against a real deployment, and the page in a real browser."""
import json
import os
import re
import shutil
import statistics
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from deployment import BINARY, tries

PLOTS = ["ttft", "tpot", "itl", "e2e", "throughput", "requests", "inflight", "latency"]
BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"])), None)


def run(*arguments, timeout=300, **options) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)


@pytest.fixture(scope="module")
def measured(baton, tmp_path_factory):
    """Two saved runs, and the pages of one and of both."""
    folder = tmp_path_factory.mktemp("bench")
    load = ["--input", "20..60", "--output", 12, "--requests", 24, "--warmup", 4, "--slo-ttft", "2s"]
    for seed, users in [(1, 1), (2, 3)]:
        name = folder / f"users-{users}"
        saved = ["--json", f"{name}.json", "--html", f"{name}.html", "--label", f"{users} users"]
        done = run("bench", "serve", "--url", baton.url, "--users", users, "--seed", seed, *load, *saved)
        assert done.returncode == 0, done.stderr
    files = [folder / "users-1.json", folder / "users-3.json"]
    done = run("bench", "report", *files, "--html", folder / "both.html")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_run_is_measured_and_saved(measured):
    folder, _ = measured
    result = json.loads((folder / "users-1.json").read_text())
    requests = result["summary"]["requests"]
    assert (requests["measured"], requests["completed"], requests["failed"]) == (20, 20, 0)
    assert requests["output_tokens"] == 20 * 12
    assert result["server"]["prompts"].startswith("token ids"), "our server takes ids"
    assert 0 < result["summary"]["ttft_ms"]["p50"] <= result["summary"]["e2e_ms"]["p50"]
    for record in result["records"]:
        timings, first_ms = record["timings"], (record["first_token_us"] - record["sent_us"]) / 1000
        before_ms = timings["queue_ms"] + timings["prefill_ms"] + timings["handoff_ms"]
        assert 0 < timings["prefill_ms"] and before_ms <= first_ms, "the server's account fits what the client saw"
        assert timings["decode_ms"] > 0
    assert len(result["records"]) == 24


def test_two_runs_are_compared(measured):
    _, table = measured
    header, *rows = [line for line in table.splitlines() if line]
    assert "1 users" in header and "3 users" in header and "ratio" in header
    assert any(re.match(r"TTFT p50, ms\s+[\d.,]+\s+[\d.,]+\s+[\d.]+×", row) for row in rows), table


class Page(HTMLParser):
    """Paths by the plot they are in, and whatever could load something."""

    def __init__(self, html: str):
        super().__init__()
        self.plots, self.links = {}, []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "figure":
            self.plots[attributes["id"]] = []
        if tag == "path" and not attributes["class"].startswith(("grid", "mark")):
            list(self.plots.values())[-1].append(attributes["d"])
        self.links += [value for name, value in attributes.items() if name in ("src", "href") and value != "data:,"]


@pytest.mark.parametrize("name, runs", [("users-1", 1), ("both", 2)])
def test_the_page_has_its_plots_and_needs_nothing(measured, name, runs):
    page = Page((measured[0] / f"{name}.html").read_text())
    assert page.links == []
    assert list(page.plots) == PLOTS + [f"timeline-{run}" for run in range(runs)]
    for plot in ["ttft", "tpot", "e2e"]:
        assert len(page.plots[plot]) == runs
        assert all(path.count("L") > 50 for path in page.plots[plot]), plot
    for run in range(runs):
        bars = page.plots[f"timeline-{run}"]
        assert max(path.count("z") for path in bars) == 24, "one bar per request in its longest phase"


# The page in a frame of a given width (a window cannot be as narrow as a phone), and what a reader sees of it: every line has
# a size, nothing sticks out, and values appear under the pointer.
FRAME = """<!doctype html><meta name="color-scheme" content="light dark">
<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument, window = frame.contentWindow;
  const plots = [...page.querySelectorAll(".plot")].map(plot => {{
    const area = plot.querySelector(".area"), box = area.getBoundingClientRect(), tip = page.getElementById("tip");
    const lines = [...plot.querySelectorAll("path:not(.grid):not(.mark)")].map(path => path.getBoundingClientRect());
    const middle = {{clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}};
    area.dispatchEvent(new window.PointerEvent("pointermove", middle));
    return {{id: plot.id, width: box.width, height: box.height, tip: tip.hidden ? "" : tip.innerText,
             drawn: lines.filter(line => line.width > 5).length}};
  }});
  const seen = {{plots, scroll: page.documentElement.scrollWidth, background: window.getComputedStyle(page.body).backgroundColor}};
  document.body.append(Object.assign(document.createElement("pre"), {{id: "seen", textContent: JSON.stringify(seen)}}));
}};
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("name, width", [("users-1", 1200), ("users-1", 390), ("both", 1200), ("both", 390)])
@pytest.mark.parametrize("theme, scheme", [("light", 1), ("dark", 0)])
def test_the_page_in_a_browser(measured, tmp_path, name, width, theme, scheme):
    page, frame = (measured[0] / f"{name}.html").read_text(), tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width, page=escape(page)))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=1000"]
    flags += [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1300,1000", "--dump-dom"]
    shown = subprocess.run([BROWSER, *flags, frame.as_uri()], capture_output=True, text=True, timeout=60)
    found = re.search(r'<pre id="seen">(.*?)</pre>', shown.stdout, re.S)
    assert found, shown.stderr[-2000:]
    seen = json.loads(unescape(found[1]))
    assert seen["scroll"] <= width, "nothing sticks out to the side"
    red, *_ = map(int, re.findall(r"\d+", seen["background"]))
    assert (red > 200) == (theme == "light"), seen["background"]
    for plot in seen["plots"]:
        assert plot["drawn"] >= 1, f"{plot['id']} is empty"
        assert plot["width"] > 250 and plot["height"] > 150, plot
        assert re.search(r"\d", plot["tip"]), f"no values under the pointer of {plot['id']}"


def test_servers_are_compared(tmp_path):
    """A mock with twice the time per token takes twice the time per token."""
    mock = f"{BINARY} engine --listen 127.0.0.1:{{port}} --dialect vllm --mock prefill-ms=20,decode-ms="
    saved = tmp_path / "compared.json"
    load = ["--users", 2, "--requests", 10, "--warmup", 2, "--input", 20, "--output", 20]
    found = []
    for _ in tries():
        done = run("bench", "compare", "--a", mock + "5", "--b", mock + "10", "--labels", "five,ten", "--json", saved, *load)
        assert done.returncode == 0, done.stderr
        result = json.loads(saved.read_text())
        assert len(result["rounds"]) == 5
        order = [line.split(", ")[1].split(":")[0] for line in done.stderr.splitlines() if line.startswith("round ")]
        assert order == ["five", "ten", "ten", "five"] * 2 + ["five", "ten"]
        rows = {row["name"]: row for row in result["comparison"]}
        assert rows["CPU per request, ms"]["servers"][0]["median"] >= 0
        running = [command_line(pid) for pid in os.listdir("/proc") if pid.isdigit()]
        assert not [line for line in running if "prefill-ms=20,decode-ms=" in line and "compare" not in line]
        found.append(rows["TPOT p50, ms"]["ratios"][0]["median"])
        if found[-1] == pytest.approx(2.0, rel=0.15):
            return
    raise AssertionError(f"ratios of {found}")


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_server_that_does_not_start(tmp_path):
    done = run("bench", "compare", "--a", "echo sorry; exit 3", "--b", "true", "--requests", 5)
    assert done.returncode == 1 and "exit status: 3" in done.stderr and "| sorry" in done.stderr, done.stderr


def test_parts_are_measured_beside_their_ceilings(tmp_path):
    # A ceiling is not measured at the very same moment: on a busy machine single shares may be far off, not most of them.
    found = []
    for _ in tries():
        shares = measured_shares(tmp_path / "micro.json")
        found.append((statistics.median(shares), max(shares)))
        if 0.01 < found[-1][0] < 1.2 and found[-1][1] < 10:
            return
    raise AssertionError(f"median and largest share: {found}")


def measured_shares(saved: Path) -> list[float]:
    """Of their ceilings, by all parts that have one; whatever else is reported is checked."""
    done = run("bench", "micro", "--rounds", 2, "--json", saved)
    assert done.returncode == 0, done.stderr
    result = json.loads(saved.read_text())
    sections = {section["name"]: section for section in result["sections"]}
    assert list(sections) == ["kernels", "handoff", "router"]
    shares = {}
    for section in sections.values():
        assert section["title"] in done.stdout
        for row in section["rows"]:
            cells = dict(zip((column["name"] for column in section["columns"]), row["values"]))
            assert any(cells.values()), row
            for cell in filter(None, cells.values()):
                assert 0 <= cell["least"] <= cell["median"] <= cell["most"], row
                assert len(cell["values"]) >= 2, row
            if "of" in row:
                assert cells["share"]["median"] > 0, row
                shares[row["name"]] = cells["share"]["median"]
                assert re.search(rf"^{re.escape(row['name'])}.* \d+ % .* of {row['of']}$", done.stdout, re.M), done.stdout
    wanted = ["prefill 512: GEMM gate, up", "decode ×1: GEMM down", "prefill 512: attention", "decode ×32: attention"]
    assert {*wanted, "RMSNorm of 512 rows"} <= set(shares)
    assert [row["of"] for row in sections["handoff"]["rows"] if "of" in row] == ["memcpy", "loopback tcp"]
    alone, routed, handed = sections["router"]["rows"]
    assert alone["values"][3] is None and routed["values"][3]["median"] > 0 and handed["values"][3]["median"] > 0
    return list(shares.values())


def test_only_what_was_asked_for_is_measured():
    done = run("bench", "micro", "--rounds", 1, "--only", "handoff")
    assert done.returncode == 0 and "over tcp" in done.stdout, done.stderr
    assert "GEMM" not in done.stdout and "router" not in done.stdout, done.stdout


def test_a_chat(baton):
    done = run("chat", "--url", baton.url, "--max-tokens", 20, "--temperature", 0, input="Tell me a story.\n/retry\n/exit\n")
    assert done.returncode == 0, done.stderr
    answers = re.findall(r"(.+)\n\d+ tokens, TTFT [\d.]+ m?s, TPOT [\d.]+ m?s", done.stdout)
    assert len(answers) == 2 and answers[0] == answers[1], done.stdout


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--url", "http://127.0.0.1:9"], 1, "no connection"),
        (["--url", "https://example.com"], 2, "https is not supported"),
        (["--input", "many"], 2, "is not a length"),
        (["--trace", "/nowhere"], 2, "No such file"),
        (["--find-goodput"], 2, "--slo-ttft"),
    ],
)
def test_mistakes_are_explained(baton, arguments, code, message):
    url = [] if "--url" in arguments else ["--url", baton.url]
    done = run("bench", "serve", *url, *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
