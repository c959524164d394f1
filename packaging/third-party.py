#!/usr/bin/env python3
"""Prints the licences of everything that is compiled into the program, with their full texts.

Each text stands once, below the names of the packages that have it. A package without a file of its
own is listed with the licence that it names. What is only needed to build or to test is not in the
program, and not here.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

FILES = ("LICEN", "COPYING", "NOTICE", "UNLICENSE")


def linked(metadata: dict) -> list[dict]:
    """The packages that end up in the program, without itself."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found: set[str] = set()
    todo = [root]
    while todo:
        here = todo.pop()
        if here in found:
            continue
        found.add(here)
        for dependency in nodes[here]["deps"]:
            # A kind of None is an ordinary dependency; the others are "dev" and "build".
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    packages = [package for package in metadata["packages"] if package["id"] in found - {root}]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def main() -> int:
    target = next(
        line.removeprefix("host: ")
        for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines()
        if line.startswith("host: ")
    )
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", target]
    packages = linked(json.loads(subprocess.check_output(command)))
    texts: dict[str, list[str]] = defaultdict(list)
    print("lock_exporter holds these packages, under these licences. Their texts are below.\n")
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license']}  {package['repository'] or ''}".rstrip())
        folder = Path(package["manifest_path"]).parent
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name.upper().startswith(FILES):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                texts[text.replace("\r\n", "\n")].append(f"{name} ({file.name})")
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        print("\n" + "=" * 100)
        print("\n".join(names) + "\n\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
