"""Checks that every relative link and anchor, and every path of the repository in backquotes, in its Markdown leads somewhere.
Exits 1 and names those that do not."""
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
PATH = re.compile(r"`((?:crates|tests|scripts|docs|bench)/[\w./-]+)`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)


def anchors(markdown: str) -> set[str]:
    """Heading anchors as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for heading in HEADING.findall(FENCE.sub("", markdown)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(slug if count == 0 else f"{slug}-{count}")
    return names


def broken_links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    problems = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page.resolve()
        if not file.exists():
            problems.append(f"{page}: {target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            problems.append(f"{page}: {target}: no such heading")
    problems += [f"{page}: {path}: no such file" for path in PATH.findall(text) if not Path(path).exists()]
    return problems


pages = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
problems = [problem for page in pages for problem in broken_links(Path(page))]
print("\n".join(problems) or f"{len(pages)} pages, all links lead somewhere")
sys.exit(bool(problems))
