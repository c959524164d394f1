"""The pages in a real browser: clicks, filters, keyboard, renewal, axe, hostile names.

What is checked in the browser is in `page.cjs`; here are the exporter and its two thousand targets.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import checkout
import exporter
import page_scene
import servers

SCRIPT = Path(__file__).with_name("page.cjs")
CHECKS_SECONDS = 600


def modules() -> str:
    """Where npm's packages are."""
    tools = Path(os.environ.get("LOCK_EXPORTER_TOOLS", checkout.ROOT / ".tools"))
    return os.environ.get("BROWSER_MODULES", str(tools / "npm-browser" / "node_modules"))


def in_browser(scene: page_scene.Scene, url: str, *arguments: str) -> str:
    facts = scene.folder / "facts.json"
    facts.write_text(
        json.dumps(scene.facts | {"url": url, "browser": checkout.program("chromium")})
    )
    task, *rest = arguments
    done = subprocess.run(
        [checkout.program("node"), str(SCRIPT), task, str(facts), *rest],
        env=os.environ | {"NODE_PATH": modules()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHECKS_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def wait_for_all(running: exporter.Exporter) -> None:
    """Until every target was looked at with its key."""

    def counts() -> bool:
        answer = servers.get_json(f"{running.url}/api/v1/targets?limit=1")
        (shown,) = servers.get_json(f"{running.url}/api/v1/targets?q=zoo&limit=1")["targets"]
        return "pending" not in answer["counts"] and shown["key_pending"] is False

    servers.wait_for("every target to be looked at", counts)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="page.")))
        scene = page_scene.make(folder)
        running = cls.enterClassContext(exporter.Exporter(folder, scene.config))
        wait_for_all(running)
        cls.results = json.loads(in_browser(scene, running.url, "check"))

    def test_every_check_ran(self):
        here = {name for name in dir(self) if name.startswith("test_")}
        wanted = {method(name) for name in self.results}
        self.assertEqual(wanted, here - {"test_every_check_ran"})


def method(check: str) -> str:
    return "test_" + "".join(c if c.isalnum() else "_" for c in check)


def add(check: str) -> None:
    def run(self):
        wrong = self.results[check]
        self.assertIsNone(wrong, f"\n{wrong}")

    setattr(Pages, method(check), run)


for line in SCRIPT.read_text().splitlines():
    if line.startswith('  async "'):
        add(line.split('"')[1])


if __name__ == "__main__":
    unittest.main()
