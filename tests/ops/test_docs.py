"""What the pages show is true of this version: every configuration passes the check, every query
parses, every flag exists, every link leads somewhere.

A block of YAML is known by its keys: `targets` is the exporter's own, `scrape_configs` and
`rule_files` are Prometheus', `groups` are rules, `route` is Alertmanager's. Other YAML must only be
YAML.
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import yaml

import checkout

# What a configuration may name that a reader has and the tests have not.
FILE_KEYS = re.compile(r"\b(\w+_file|cacert|env_dir): +((?:\{name\}|[^\s,}#])+)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    yield checkout.ROOT / "README.md"
    yield from sorted((checkout.ROOT / "docs").rglob("*.md"))


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Page and text of every fenced block in this language."""
    for page in pages():
        name = str(page.relative_to(checkout.ROOT))
        for found, text in FENCE.findall(page.read_text()):
            if found == language:
                yield name, text


def run(*command) -> tuple[int, str]:
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


class Docs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="docs.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stand_in(self, found: re.Match) -> str:
        """A file, or folder, with something that is right for any of the keys."""
        key, name = found.groups()
        # The key too: `password_file: x` and `env_file: x` are not the same to the check.
        path = self.folder / f"{key}-{re.sub(r'[^a-z0-9]', '_', name.lower())}"
        if key == "env_dir":
            path.mkdir(exist_ok=True)
            repository = "s3:https://s3.example.com/backups/db01"
            (path / "RESTIC_REPOSITORY").write_text(repository)
            (path / "RESTIC_PASSWORD").write_text("secret")
        elif key == "env_file":
            path.write_text("A=b\n")
        elif key == "cacert":
            shutil.copy("/etc/ssl/certs/ca-certificates.crt", path)
        else:
            path.write_text("secret\n")
        return f"{key}: {path}"

    def check(self, text: str, keys: set[str]) -> tuple[int, str]:
        file = self.folder / "file.yml"
        if "targets" in keys:
            file.write_text(FILE_KEYS.sub(self.stand_in, text))
            return run(checkout.exporter(), "--config.check", f"--config.file={file}")
        if keys & {"scrape_configs", "rule_files"}:
            text = re.sub(r"[\w./-]*rules\.yml\b", str(checkout.ALERTS / "rules.yml"), text)
            file.write_text(text)
            return run("promtool", "check", "config", file)
        file.write_text(text)
        if "groups" in keys:
            return run("promtool", "check", "rules", file)
        if "route" in keys:
            return run("amtool", "check-config", file)
        return 0, ""

    def test_every_configuration_is_accepted(self):
        counted = 0
        for page, text in blocks("yaml"):
            with self.subTest(page=page, text=text):
                found = yaml.safe_load(text)
                code, said = self.check(text, set(found) if isinstance(found, dict) else set())
                self.assertEqual(code, 0, said)
                counted += "targets" in found
        self.assertGreaterEqual(counted, 3)

    def test_every_query_parses(self):
        for page, text in blocks("promql"):
            # A query goes on in lines that are indented, close a bracket or begin with an operator.
            lines = re.sub(r" *#.*", "", text)
            for query in re.split(r"\n+(?![\s)}*/+<>=-]|and |or |unless |on |by )", lines.strip()):
                with self.subTest(page=page, query=query):
                    promql_parser.parse(query)

    def test_every_metric_in_a_query_is_one(self):
        reference = (checkout.ROOT / "docs/metrics.md").read_text()
        known = set(re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE))
        for page, text in blocks("promql"):
            for metric in re.findall(r"\block_\w+", text):
                with self.subTest(page=page, metric=metric):
                    self.assertIn(metric, known)

    def test_every_flag_exists(self):
        flags = set()
        for command in ([], ["check"], ["demo"], ["completions"]):
            code, said = run(checkout.exporter(), *command, "--help")
            self.assertEqual(code, 0)
            flags |= set(re.findall(r"--[a-z][a-z.-]+", said))
        for page in pages():
            for line in page.read_text().splitlines():
                shown = re.search(r"\block_exporter (?:[^|`]*)", line)
                words = re.findall(r"(?<=\s)--[a-z][a-z.-]+", shown[0]) if shown else []
                for flag in words:
                    with self.subTest(page=page.name, line=line):
                        self.assertIn(flag.rstrip("."), flags)

    def test_links_to_headings_lead_to_one(self):
        for page in pages():
            for link in re.findall(r"\]\(([^):]*#[^)]+)\)", page.read_text()):
                name, _, wanted = link.partition("#")
                target = page.parent / name if name else page
                headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
                with self.subTest(page=page.name, link=link):
                    self.assertIn(wanted, map(anchor, headings))

    def test_every_module_has_its_row_in_the_architecture(self):
        text = (checkout.ROOT / "ARCHITECTURE.md").read_text()
        rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        library = (checkout.ROOT / "src/lib.rs").read_text()
        modules = set(re.findall(r"^pub mod (\w+);", library, re.MULTILINE))
        self.assertGreater(len(modules), 10)
        self.assertEqual(named, modules)

    def test_every_page_can_be_found(self):
        index = (checkout.ROOT / "docs/README.md").read_text()
        for page in (checkout.ROOT / "docs").rglob("*.md"):
            name = page.relative_to(checkout.ROOT / "docs")
            if page.name == "README.md" or name.parts[0] == "runbooks":
                continue
            with self.subTest(name):
                self.assertIn(f"]({name})", index)


if __name__ == "__main__":
    unittest.main()
