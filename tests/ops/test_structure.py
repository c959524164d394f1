"""The shape of the repository: what a reader expects is there, and has something in it."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import checkout
import servers

TOP = ("Cargo.toml", "src", "dashboards", "alerts", "tests", "helm", "benches", "docs")
SCRIPTS = {"tests/run", ".ci/run", "benches/run", "packaging/sbom"}
# Python files are held to the same limits as the rest of the project.
LINES_MAX = 600
COLUMNS_MAX = 100


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name]


def names_of_tests() -> set[str]:
    found: set[str] = set()
    for name in tracked():
        if name.endswith(".rs"):
            text = (checkout.ROOT / name).read_text()
            found.update(re.findall(r"#\[(?:tokio::)?test[^]]*\]\s+(?:async )?fn (\w+)", text))
        elif re.fullmatch(r"tests/ops/test_\w+\.py", name):
            text = (checkout.ROOT / name).read_text()
            found.update(re.findall(r"^    def (test_\w+)\(self", text, re.M))
    return found


class Top(unittest.TestCase):
    def test_it_is_there(self):
        for name in TOP:
            with self.subTest(name):
                path = checkout.ROOT / name
                self.assertTrue(path.is_file() or any(path.iterdir()))

    def test_programs_can_be_run(self):
        for name in (
            "tests/run",
            ".ci/run",
            "tests/make-restic-fixtures.sh",
            "dashboards/build.py",
            "helm/document.py",
            "benches/run",
            "packaging/sbom",
        ):
            with self.subTest(name):
                self.assertTrue(os.access(checkout.ROOT / name, os.X_OK))

    def test_continuous_integration_runs_the_whole_check_and_nothing_else(self):
        lines = [
            line
            for line in (checkout.ROOT / ".ci/run").read_text().splitlines()
            if line and not line.startswith("#")
        ]
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"tests/run")

    def test_every_part_is_listed_and_has_its_tests(self):
        done = subprocess.run(
            [checkout.ROOT / "tests/run", "--list"], capture_output=True, text=True, check=True
        )
        parts = {line.split()[0].replace("-", "_") for line in done.stdout.splitlines()}
        modules = {
            path.stem.removeprefix("test_")
            for path in (checkout.ROOT / "tests/ops").glob("test_*.py")
        }
        self.assertEqual(modules - parts, set(), "tests that no part runs")

    def test_an_unknown_part_is_a_usage_error(self):
        done = subprocess.run(
            [checkout.ROOT / "tests/run", "no-such-part"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 64)


class Shell(unittest.TestCase):
    def test_scripts_have_no_known_mistakes(self):
        scripts = [
            name for name in tracked() if name.endswith(".sh") or name in SCRIPTS
        ]
        self.assertGreaterEqual(len(scripts), 5)
        done = subprocess.run(
            [checkout.program("shellcheck"), "-x", "--severity=warning", *scripts],
            cwd=checkout.ROOT,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)


class Python(unittest.TestCase):
    def test_files_say_what_they_do_and_stay_small(self):
        for name in tracked():
            if not name.endswith(".py"):
                continue
            with self.subTest(name):
                lines = (checkout.ROOT / name).read_text().splitlines()
                first = lines[1] if lines[0].startswith("#!") else lines[0]
                self.assertRegex(first, r'^"""[A-Z].+')
                self.assertLessEqual(len(lines), LINES_MAX)
                self.assertLessEqual(max(map(len, lines)), COLUMNS_MAX)


class Documents(unittest.TestCase):
    def test_links_between_files_lead_somewhere(self):
        for name in tracked():
            if not name.endswith(".md"):
                continue
            page = checkout.ROOT / name
            for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                with self.subTest(name, link=link):
                    self.assertTrue((page.parent / link).exists())


class FieldCases(unittest.TestCase):
    """The page of situations from the field names tests that exist."""

    def test_every_situation_has_a_test_or_says_what_is_missing(self):
        page = (checkout.ROOT / "docs" / "field-cases.md").read_text()
        rows = [
            line.strip("|").split("|")
            for line in page.splitlines()
            if line.startswith("| ") and "---" not in line and "| tests |" not in line
        ]
        self.assertGreaterEqual(len(rows), 50)
        known = names_of_tests()
        for situation, report, _, tests in rows:
            with self.subTest(situation.strip()):
                self.assertTrue(report.strip())
                named = re.findall(r"`([^`]+)`", tests)
                self.assertTrue(named or "not yet: " in tests)
                self.assertLessEqual(set(named), known)


class Threats(unittest.TestCase):
    """The page on security names the tests of each threat."""

    def test_every_threat_has_tests_that_exist(self):
        page = (checkout.ROOT / "docs" / "security.md").read_text()
        table = page.split("## Who can do what")[1].split("\n## ")[0]
        rows = [line.strip("|").split("|") for line in table.splitlines() if line[:2] == "| "][2:]
        self.assertGreaterEqual(len(rows), 8)
        known = names_of_tests()
        fuzzed = {path.name for path in (checkout.ROOT / "tests/fuzz/corpus").iterdir()}
        for path in (checkout.ROOT / "tests/fuzz").glob("*.rs"):
            fuzzed.update(re.findall(r'\bname: "([\w-]+)"', path.read_text()))
        for who, _, cannot in rows:
            with self.subTest(who.strip()):
                tests = {name for name in re.findall(r"`(\w+)`", cannot) if "_" in name}
                self.assertTrue(tests)
                self.assertLessEqual(tests, known | {"rate_limit"})
                self.assertLessEqual(set(re.findall(r"\*([\w-]+)\*", cannot)), fuzzed)


class Fixtures(unittest.TestCase):
    def test_holders_end_by_themselves(self):
        """Once the watchdog looked for the script below `/` if it was called by a relative path."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["bash", f"tests/{checkout.FIXTURE_MAKER.name}", folder],
                cwd=checkout.ROOT,
                env=os.environ
                | {"FIXTURE_ONLY": "^nothing$", "FIXTURE_TTL": "1", "FIXTURE_ASK": "0"},
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            # The list of processes goes when they were stopped.
            pids = Path(folder) / "run" / "pids"
            servers.wait_for("the watchdog", lambda: not pids.exists())
