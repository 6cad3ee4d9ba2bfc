#!/usr/bin/env python3
"""Finds files of a crate that import each other in a circle.

    scripts/import_circles.py [CRATE] [--most N] [--edges]

Every path that begins with `crate`, `self`, `super`, a module or an imported module counts, in `use` and inline. It leads to
the file that defines the item: re-exports are followed, so a parent that only declares and re-exports its children depends on
none of them. Tests (`#[cfg(test)]`) are left out. Prints each circle (strongly connected component), largest first; with
`--most N` a circle of more than N files is an error.
"""

import argparse
import re
import sys
from pathlib import Path

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                              # comments
    |b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"  # strings
    |b?'(?:\\[^']+|[^'\\])'|'\w+                    # characters and lifetimes
    |(?P<kept>\w+|::|\$|[^\s\w])""",
    re.X | re.S,
)
DEFINES = {"fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"}
ROOTS = ("crate", "self", "super")


class Module:
    def __init__(self, file, parent, name):
        self.file, self.parent, self.name = file, parent, name
        self.children, self.defined, self.imports, self.globs, self.paths = {}, set(), {}, [], []

    def root(self):
        return self if self.parent is None else self.parent.root()


def tokens(text):
    return [match["kept"] for match in TOKEN.finditer(text) if match["kept"]]


def past_block(words, at):
    """The position after the item that begins at `at`: after its `;`, or after its closing brace."""
    depth = 0
    while at < len(words):
        if words[at] in "([{":
            depth += 1
        elif words[at] in ")]}":
            depth -= 1
            if depth == 0 and words[at] == "}":
                return at + 1
        elif words[at] == ";" and depth == 0:
            return at + 1
        at += 1
    return at


def past_attribute(words, at):
    depth = 0
    while at < len(words):
        depth += (words[at] == "[") - (words[at] == "]")
        at += 1
        if depth == 0 and words[at - 1] == "]":
            break
    return at


def use_tree(words, at, prefix, found):
    """Reads one use tree, adds (path, name it gets here or None for a glob); returns the position after it."""
    path = list(prefix)
    while True:
        if words[at] == "{":
            at += 1
            while words[at] != "}":
                at = use_tree(words, at, path, found)
                at += words[at] == ","
            return at + 1
        if words[at] == "*":
            found.append((path, None))
            return at + 1
        if words[at] != "::":
            path.append(words[at])
        at += 1
        if words[at] == "as":
            found.append((path, words[at + 1]))
            return at + 2
        if words[at] in (",", "}", ";"):
            if path[-1] == "self":
                path.pop()
            found.append((path, path[-1]))
            return at


def read(module, words, folder, start=0):
    """Reads the items of a module until its block ends; `folder` is where its children's files are."""
    at, depth = start, 0
    while at < len(words):
        word = words[at]
        if word == "#" and words[at + 1] == "[":
            end = past_attribute(words, at + 1)
            if words[at + 2 : end - 1] == ["cfg", "(", "test", ")"]:
                while words[end] == "#":
                    end = past_attribute(words, end + 1)
                end = past_block(words, end)
            at = end
        elif word == "mod" and words[at + 2] in (";", "{"):
            child = Module(module.file, module, words[at + 1])
            module.children[child.name] = child
            if words[at + 2] == "{":
                at = read(child, words, folder / child.name, at + 3)
            else:
                for path in (folder / f"{child.name}.rs", folder / child.name / "mod.rs"):
                    if path.exists():  # Else `#[path]` takes it from another crate: a file by itself.
                        child.file = path
                        read(child, tokens(path.read_text()), folder / child.name)
                at += 3
        elif word == "use":
            found = []
            public = words[at - 1] in ("pub", ")") if at else False
            at = use_tree(words, at + 1, [], found)
            for path, name in found:
                if name is None:
                    module.globs.append(path)
                else:
                    module.imports[name] = path
                if not public:
                    module.paths.append(path + ([] if name else ["*"]))
        elif word == "}" and depth == 0:
            return at + 1
        else:
            depth += (word == "{") - (word == "}")
            if word in DEFINES:
                module.defined.add(words[at + 1] if word != "macro_rules" else words[at + 2])
            if at + 1 < len(words) and words[at + 1] == "::" and (not at or words[at - 1] != "::"):
                end = at + 1
                while words[end] == "::" and words[end + 1].isidentifier():
                    end += 2
                module.paths.append(words[at:end:2])
                at = end
            else:
                at += 1
    return at


def resolve(module, path, seen=()):
    """The file and module a path leads to: (file, module or None). None for what is outside of the crate."""
    if not path or (id(module), tuple(path)) in seen:
        return None
    seen = (*seen, (id(module), tuple(path)))
    first, rest = path[0], path[1:]
    if first in ROOTS:
        target = {"crate": module.root(), "self": module, "super": module.parent}[first]
    elif first in module.children:
        target = module.children[first]
    elif first in module.imports:
        found = resolve(module, module.imports[first], seen)
        if found is None or found[1] is None:
            return found
        target = found[1]
    elif first == "*" or first in module.defined:
        return module.file, None
    else:
        hits = (resolve(found[1], path, seen) for glob in module.globs if (found := resolve(module, glob, seen)) and found[1])
        return next((hit for hit in hits if hit), None)
    return resolve(target, rest, seen) if rest else (target.file, target)


def imports(crate):
    """file → {file it uses: the paths that lead there}"""
    source = crate / "src"
    entry = next(path for path in (source / "lib.rs", source / "main.rs") if path.exists())
    root = Module(entry, None, "crate")
    read(root, tokens(entry.read_text()), source)
    edges, waiting = {}, [root]
    while waiting:
        module = waiting.pop()
        waiting.extend(module.children.values())
        users = edges.setdefault(module.file, {})
        for path in module.paths:
            found = resolve(module, path)
            if found is None or found[0] == module.file:
                continue
            if found[1] is not None and found[1].file == found[0] and path[-1] != "*":
                continue  # A module by itself: what is used of it are the paths that go on from its name.
            users.setdefault(found[0], set()).add("::".join(path))
    return edges


def circles(edges):
    """Strongly connected components of more than one file, largest first (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(file):
        number[file] = low[file] = len(number)
        stack.append(file)
        for other in edges.get(file, ()):
            if other not in number:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], number[other])
        if low[file] == number[file]:
            at = stack.index(file)
            found.append(stack[at:])
            del stack[at:]

    for file in edges:
        if file not in number:
            visit(file)
    return sorted((sorted(circle) for circle in found if len(circle) > 1), key=len, reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crate", nargs="?", type=Path, default=Path(__file__).parent.parent / "crates/cpu")
    parser.add_argument("--most", type=int, metavar="N", help="exit with 1 when a circle has more than N files")
    parser.add_argument("--edges", action="store_true", help="also print which paths close each circle")
    options = parser.parse_args()
    sys.setrecursionlimit(10000)

    edges, source = imports(options.crate), options.crate / "src"
    found = circles(edges)
    for circle in found:
        print(f"{len(circle)} files: {', '.join(str(file.relative_to(source)) for file in circle)}")
        for file in circle if options.edges else ():
            for other in sorted(set(edges[file]) & set(circle)):
                print(f"    {file.relative_to(source)} -> {other.relative_to(source)}: {', '.join(sorted(edges[file][other]))}")
    largest = len(found[0]) if found else 0
    print(f"{len(edges)} files, largest circle: {largest}")
    return 1 if options.most is not None and largest > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
