"""Long: what the fixtures say of themselves is what real restics do with them.

Every restic is asked in namespaces of its own, since `restic unlock` signals processes.
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import checkout

# No restic opens these, so none removes anything.
NOT_OPENED = {"wrong-password", "no-config", "not-a-repository"}


class Fixtures(unittest.TestCase):
    def test_unlock_removes_exactly_the_stale_locks(self):
        programs = {
            name: os.environ[name]
            for name in ("RESTIC_014", "RESTIC_018", "RESTIC_019")
            if name in os.environ
        }
        self.assertLessEqual({"RESTIC_014", "RESTIC_018"}, set(programs))
        for name, program in programs.items():
            with tempfile.TemporaryDirectory() as folder:
                for repository in self.manifest(program, Path(folder))["repositories"]:
                    with self.subTest(name, repository=repository["name"]):
                        self.check(repository)

    def manifest(self, program: str, folder: Path) -> dict:
        # The live holders end with their namespace, before the folder is removed.
        done = subprocess.run(
            [
                "unshare",
                "--pid",
                "--uts",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                'hostname fixtures && exec "$@"',
                "sh",
                "bash",
                checkout.FIXTURE_MAKER,
                folder,
            ],
            env=os.environ | {"RESTIC": program, "FIXTURE_MANY": "40"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((folder / "manifest.json").read_text())

    def check(self, repository: dict):
        expected = repository["expected"]
        stale = 0 if repository["name"] in NOT_OPENED else expected["stale"]
        self.assertEqual(
            repository["restic_unlock"]["files_left"],
            expected["files"] - stale,
            repository["restic_unlock"],
        )
