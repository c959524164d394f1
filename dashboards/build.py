#!/usr/bin/env python3
"""Writes the dashboards: typed panels in, Grafana's classic JSON out.

    dashboards/build.py           write the JSON files beside this one
    dashboards/build.py --check   exit 1 if a committed file differs

Grafana 11.6 and newer load them: older schema versions are migrated up, newer ones never down.
Each board is a module of its own below `boards`; this file only writes them.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from boards import exporter, file_locks, overview, target  # noqa: E402
from boards.grafana import Board  # noqa: E402

# File names are stable: the chart and people's provisioning name them.
BOARDS = {
    "overview": overview.BOARD,
    "target": target.BOARD,
    "file-locks": file_locks.BOARD,
    "exporter": exporter.BOARD,
}


def text_of(board: Board) -> str:
    return json.dumps(board.json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    stale = []
    for name, board in BOARDS.items():
        file = HERE / f"{name}.json"
        text = text_of(board)
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text() != text:
                stale.append(file.name)
        else:
            file.write_text(text)
    if stale:
        print(f"run dashboards/build.py: {', '.join(stale)} differ", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
