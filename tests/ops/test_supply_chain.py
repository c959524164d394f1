"""What the program is made of is what deny.toml allows, and nothing that nobody needs.

cargo-deny reads the same file; it takes minutes to build, so here its rules are checked on what
cargo tells. The long part `sbom` runs cargo-deny itself.
"""

import functools
import json
import re
import subprocess
import tomllib
import unittest
from collections import defaultdict

import checkout

DENY = tomllib.loads((checkout.ROOT / "deny.toml").read_text())
MANIFEST = tomllib.loads((checkout.ROOT / "Cargo.toml").read_text())


@functools.cache
def packages() -> list[dict]:
    """Everything that takes part in a build for one of the targets."""
    found: dict[str, dict] = {}
    for target in DENY["graph"]["targets"]:
        command = ["cargo", "metadata", "--locked", "--format-version=1"]
        done = subprocess.run(
            [*command, f"--filter-platform={target}"],
            cwd=checkout.ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(done.stdout)
        used = {node["id"] for node in told["resolve"]["nodes"]}
        found |= {package["id"]: package for package in told["packages"] if package["id"] in used}
    return list(found.values())


def choices(expression: str) -> list[set[str]]:
    """The sets of licences of which one is enough (SPDX; older crates write `/` for OR)."""
    words = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))

    def either() -> list[set[str]]:
        found = both()
        while words and words[0] == "OR":
            words.pop(0)
            found = found + both()
        return found

    def both() -> list[set[str]]:
        found = one()
        while words and words[0] == "AND":
            words.pop(0)
            found = [left | right for right in one() for left in found]
        return found

    def one() -> list[set[str]]:
        word = words.pop(0)
        if word == "(":
            found = either()
            assert words.pop(0) == ")", expression
            return found
        if words and words[0] == "WITH":
            words.pop(0)
            word += " WITH " + words.pop(0)
        return [{word}]

    found = either()
    assert not words, expression
    return found


class Licences(unittest.TestCase):
    def test_expressions_are_understood(self):
        for expression, sets in (
            ("MIT", [{"MIT"}]),
            ("MIT/Apache-2.0", [{"MIT"}, {"Apache-2.0"}]),
            ("A AND (B OR C)", [{"A", "B"}, {"A", "C"}]),
            ("A OR B AND C", [{"A"}, {"B", "C"}]),
            ("A WITH E OR B", [{"A WITH E"}, {"B"}]),
        ):
            self.assertEqual(choices(expression), sets)

    def test_every_licence_is_allowed_and_every_allowed_one_is_needed(self):
        allowed = set(DENY["licenses"]["allow"])
        needed = set()
        for package in packages():
            with self.subTest(package["name"]):
                self.assertTrue(package["license"])
                enough = [one for one in choices(package["license"]) if one <= allowed]
                self.assertTrue(enough, package["license"])
                needed |= set().union(*enough)
        self.assertEqual(allowed, needed)


class Crates(unittest.TestCase):
    def test_all_come_from_the_registry(self):
        registries = {f"registry+{url}" for url in DENY["sources"]["allow-registry"]}
        foreign = {p["source"] for p in packages() if p["name"] != MANIFEST["package"]["name"]}
        self.assertEqual(foreign, registries)

    def test_none_is_banned(self):
        banned = {one["crate"] for one in DENY["bans"]["deny"]}
        self.assertEqual(banned & {package["name"] for package in packages()}, set())

    def test_each_is_there_once_or_has_a_reason(self):
        versions = defaultdict(set)
        for package in packages():
            versions[package["name"]].add(package["version"])
        skipped = DENY["bans"]["skip"]
        for one in skipped:
            self.assertTrue(one["reason"])
            name, version = one["crate"].split("@")
            self.assertIn(version, versions[name], f"{name}: no reason is needed any more")
            self.assertGreater(len(versions[name]), 1, f"{name}: no reason is needed any more")
            versions[name].discard(version)
        twice = {name: found for name, found in versions.items() if len(found) > 1}
        self.assertEqual(twice, {}, "cargo tree -d shows why")

    def test_each_that_is_named_is_used(self):
        sources = checkout.ROOT.glob("src/**/*.rs")
        text = "\n".join(path.read_text() for path in sources)
        for name in MANIFEST["dependencies"]:
            with self.subTest(name):
                self.assertRegex(text, rf"\b{name.replace('-', '_')}\b")

    def test_no_version_is_left_open(self):
        for name, wish in MANIFEST["dependencies"].items():
            with self.subTest(name):
                version = wish if isinstance(wish, str) else wish["version"]
                self.assertRegex(version, r"^\d+(\.\d+)*$")
