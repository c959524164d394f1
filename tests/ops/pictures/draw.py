"""Draws every board with real query results, by Grafana's own components, in dark and light.

draw.py DRAWING FOLDER [--small]

DRAWING is where npm installed `package.json`; the pictures are written to FOLDER. With --small only
the tops of two boards, for the documentation. No Grafana is involved: `app.jsx` draws what
`@grafana/ui` has, and says below the others that they are a stand-in.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import board_queries  # noqa: E402
import checkout  # noqa: E402
import servers  # noqa: E402
from pictures import story  # noqa: E402

WIDTH = 1600
CELL, GAP = 30, 8
STEP = int(story.LASTS) // 200
FILLED = {
    "__range": f"{int(story.LASTS)}s",
    "__interval": f"{STEP}s",
    "__rate_interval": "240s",
}
# What is chosen at the top of the boards.
CHOSEN = {"target.json": {"target": "mail"}}
# A fleet without exporters: every panel must say that nothing is known.
NOTHING = {"job": "nobody"}

CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--hide-scrollbars",
    "--virtual-time-budget=20000",
)


def with_history(folder: Path, end: float) -> servers.Prometheus:
    """A Prometheus that holds the story."""
    text = folder / "story.om"
    with text.open("w") as file:
        file.writelines(story.openmetrics(end))
    blocks = folder / "prometheus-data"
    subprocess.run(
        [
            checkout.program("promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--quiet",
            text,
            blocks,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return servers.Prometheus(folder, {})


def ask(prometheus: servers.Prometheus, target: dict, chosen: dict, end: float) -> list[dict]:
    expr = board_queries.fill(target["expr"], FILLED | chosen)
    if target["instant"]:
        path, asked = "query", {"query": expr, "time": str(end)}
    else:
        path = "query_range"
        start = end - story.LASTS
        asked = {"query": expr, "start": str(start), "end": str(end), "step": str(STEP)}
    url = f"{prometheus.url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
    return servers.get_json(url)["data"]["result"]


def answered(prometheus, board: dict, chosen: dict, end: float) -> dict:
    answers = {
        str(panel["id"]): [ask(prometheus, target, chosen, end) for target in panel["targets"]]
        for panel in board_queries.panels(board)
    }
    return {"board": board, "answers": answers, "start": end - story.LASTS, "end": end}


def bundle(drawing: Path, folder: Path) -> Path:
    """One script and one style sheet for the browser."""
    script = folder / "app.js"
    # This package exports by name only where esbuild looks; @grafana/ui imports its default.
    scroll = folder / "scroll.js"
    exports = drawing / "node_modules/react-custom-scrollbars-2/lib/index.js"
    scroll.write_text(f"export {{ Scrollbars, Scrollbars as default }} from '{exports}';\n")
    subprocess.run(
        [
            drawing / "node_modules/.bin/esbuild",
            HERE / "app.jsx",
            "--bundle",
            f"--outfile={script}",
            "--loader:.svg=dataurl",
            "--loader:.woff2=dataurl",
            "--loader:.ttf=dataurl",
            '--define:process.env.NODE_ENV="production"',
            "--define:global=window",
            f"--alias:react-custom-scrollbars-2={scroll}",
            "--log-level=error",
        ],
        check=True,
        env=os.environ | {"NODE_PATH": str(drawing / "node_modules")},
    )
    return script


def height_of(board: dict) -> int:
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    return rows * (CELL + GAP) + 60


def shoot(
    script: Path, folder: Path, name: str, told: dict, mode: str, height: int, scale: float = 1
) -> Path:
    page = folder / f"{name}-{mode}.html"
    told = told | {"mode": mode, "width": WIDTH, "cell": CELL, "gap": GAP}
    data = json.dumps(told).replace("</", "<\\/")
    page.write_text(
        "<!doctype html><meta charset=utf-8><link rel=stylesheet href=app.css>"
        f"<body style='margin:0'><div id=app></div><script>window.told = {data}</script>"
        f"<script src={script.name}></script>"
    )
    picture = folder / f"{name}-{mode}.png"
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                checkout.program("chromium"),
                *CHROMIUM,
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{height}",
                f"--force-device-scale-factor={scale}",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    if done.returncode or not picture.exists():
        raise AssertionError(f"{name}: {done.stderr[-2000:]}")
    return picture


# The tops that the documentation shows: board, brightness, height.
SMALL = {"overview": ("dark", 990), "target": ("light", 860)}


def page_of(picture: Path) -> str:
    """What the page of a picture has as HTML once it is drawn."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                checkout.program("chromium"),
                *CHROMIUM,
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},4000",
                "--dump-dom",
                picture.with_suffix(".html").as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    body = done.stdout.partition("<script>")
    return body[0] + body[2].partition("</script>")[2]


def draw(drawing: Path, folder: Path, small: bool = False) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    script = bundle(drawing, folder)
    end = time.time() // 60 * 60
    made = []
    with contextlib.ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prometheus = stack.enter_context(with_history(store, end))
        for file, board in board_queries.boards().items():
            name = file.removesuffix(".json")
            if small:
                if name in SMALL:
                    told = answered(prometheus, board, CHOSEN.get(file, {}), end)
                    mode, height = SMALL[name]
                    made.append(shoot(script, folder, name, told, mode, height, scale=0.7))
                continue
            for scene, chosen in (("night", CHOSEN.get(file, {})), ("nothing", NOTHING)):
                told = answered(prometheus, board, chosen, end)
                for mode in ("dark", "light"):
                    picture = f"{name}-{scene}"
                    made.append(shoot(script, folder, picture, told, mode, height_of(board)))
    return made


if __name__ == "__main__":
    drawing, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    if "--small" in sys.argv[3:]:
        # Nothing but the pictures is for the documentation.
        with tempfile.TemporaryDirectory() as scratch:
            for path in draw(drawing, Path(scratch), small=True):
                print(shutil.copy(path, folder))
    else:
        for path in draw(drawing, folder):
            print(path)
