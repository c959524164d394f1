"""The verdict of cargo-deny, and the bill of materials of the program. A long part, since their
tools take minutes to build."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import checkout

CARGO = Path(os.environ["CARGO_TOOLS"])


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command],
        cwd=checkout.ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


class Deny(unittest.TestCase):
    def test_licences_bans_duplicates_and_sources(self):
        done = run(CARGO / "cargo-deny", "--offline", "check", "licenses", "bans", "sources")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_advisories_where_their_database_can_be_had(self):
        done = run(CARGO / "cargo-deny", "check", "advisories")
        said = done.stdout + done.stderr
        if "failed to fetch advisory database" in said:
            print("\nnot checked: the database of advisories cannot be had here")
            return
        self.assertEqual(done.returncode, 0, said)


class Bill(unittest.TestCase):
    def bill(self, folder: Path) -> bytes:
        file = folder / "lock_exporter.cdx.json"
        done = run(
            checkout.ROOT / "packaging" / "sbom",
            file,
            CARGO_CYCLONEDX=str(CARGO / "cargo-cyclonedx"),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return file.read_bytes()

    def test_it_is_valid_whole_and_each_time_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.bill(Path(folder))
            self.assertEqual(text, self.bill(Path(folder)))
            self.assertNotIn(folder.encode(), text)
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_5).validate_str(text.decode()))
        self.assertNotIn(b"file:/", text)
        told = json.loads(text)
        listed = {(part["name"], part["version"]) for part in told["components"]}
        for part in told["components"]:
            with self.subTest(part["name"]):
                self.assertTrue(part["licenses"] and part["hashes"])
        tree = run("cargo", "tree", "--locked", "--edges=normal", "--prefix=none")
        linked = set(re.findall(r"^(\S+) v(\S+)", tree.stdout, re.M))
        linked = {crate for crate in linked if crate[0] != "lock_exporter"}
        # It may name more: what only the features of tests bring in.
        self.assertLessEqual(linked, listed)
        self.assertGreater(len(linked), 100)
