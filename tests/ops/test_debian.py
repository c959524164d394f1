"""The Debian package: built, looked at by lintian, installed, used, upgraded and purged in a root
folder of Debian."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import checkout
import debian_root

SERVICES = ("lock-exporter.service", "lock-exporter-local.service")
CONFIGURATION = "/etc/default/lock-exporter"
CHANGED = 'ARGS="--log.level=debug"\n'


def build(folder: Path, version: str, **environment: str) -> Path:
    """The package with the program under test."""
    package = folder / f"lock-exporter_{version}.deb"
    # The program lies where cargo-deb looks for it; nothing is compiled here.
    target = folder / "target"
    (target / "release").mkdir(parents=True, exist_ok=True)
    shutil.copy(checkout.exporter(), target / "release" / "lock_exporter")
    done = subprocess.run(
        [
            *(os.environ["CARGO_DEB"], "--no-build", "--strip", "--locked"),
            *("--deb-version", version, "-o", package),
        ],
        cwd=checkout.ROOT,
        env=os.environ | {"CARGO_TARGET_DIR": str(target)} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and package.is_file(), done.stderr
    assert "warning" not in done.stderr, done.stderr
    return package


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="debian.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.packages = {version: build(cls.folder, version) for version in ("0.1.0-1", "0.1.1-1")}

    def test_lintian_has_no_complaint(self):
        done = subprocess.run(
            [
                *("lintian", "--fail-on=error,warning", "--allow-root"),
                *("--no-cfg", self.packages["0.1.0-1"]),
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_same_source_makes_the_same_bytes(self):
        made = [
            build(self.folder / place, "0.1.0-1", SOURCE_DATE_EPOCH="1700000000").read_bytes()
            for place in ("here", "there")
        ]
        self.assertEqual(made[0], made[1])

    def test_it_is_installed_used_upgraded_and_purged(self):
        with debian_root.DebianRoot() as root:
            self.root = root
            self.install("0.1.0-1")
            self.nothing_is_enabled()
            self.the_program_works()
            self.the_configuration_file_is_kept()
            self.it_is_purged()

    def ok(self, *command: str, **options) -> str:
        done = self.root.run(list(command), **options)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def inside(self, path: str) -> Path:
        return self.root.path / path.lstrip("/")

    def install(self, version: str) -> None:
        shutil.copy(self.packages[version], self.inside("/tmp/lock-exporter.deb"))
        self.ok("dpkg", "--install", "/tmp/lock-exporter.deb")
        state = self.ok("dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", "lock-exporter")
        self.assertEqual(state, f"installed {version}")

    def nothing_is_enabled(self) -> None:
        for service in SERVICES:
            self.assertTrue(self.inside(f"/usr/lib/systemd/system/{service}").is_file())
        links = [path for path in self.inside("/etc/systemd").rglob("*") if path.is_symlink()]
        self.assertFalse([link for link in links if "lock-exporter" in link.name])
        self.assertIn("/var/lib/lock-exporter", self.ok("getent", "passwd", "lock-exporter"))
        self.assertTrue(self.inside("/etc/lock-exporter").is_dir())

    def the_program_works(self) -> None:
        self.assertRegex(self.ok("lock_exporter", "--version"), r"^lock_exporter \d")
        # A message for whoever starts it before it is configured.
        done = self.root.run(["lock_exporter", "--config.check"])
        self.assertEqual(done.returncode, 64, done.stdout)
        self.assertIn("/etc/lock-exporter", done.stdout)
        user = self.ok("sh", "-c", "id -u lock-exporter; id -g lock-exporter").split()
        debian_root.make_repository(self.inside("/srv/one"), user=":".join(user))
        config = self.inside("/etc/lock-exporter/lock_exporter.yml")
        config.write_text("targets: [{name: one, restic: {repository: /srv/one}}]\n")
        found = self.ok("lock_exporter", "check", user=":".join(user))
        self.assertRegex(found, r"ok +one +free")
        manual = self.inside("/usr/share/man/man1/lock_exporter.1.gz")
        self.assertTrue(manual.is_file())
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", manual],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("config.file", done.stdout)
        completion = "/usr/share/bash-completion/completions/lock_exporter"
        words = 'COMP_WORDS=(lock_exporter hea); COMP_CWORD=1; _lock_exporter lock_exporter hea ""'
        script = f'. {completion}; {words}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        self.assertIn("healthcheck", self.ok("bash", "-c", script))

    def the_configuration_file_is_kept(self) -> None:
        listed = self.ok("dpkg-query", "-W", "-f=${Conffiles}", "lock-exporter")
        self.assertIn(CONFIGURATION, listed)
        self.inside(CONFIGURATION).write_text(CHANGED)
        self.inside("/var/lib/lock-exporter").mkdir()
        self.install("0.1.1-1")
        self.assertEqual(self.inside(CONFIGURATION).read_text(), CHANGED)
        self.assertTrue(self.inside("/etc/lock-exporter/lock_exporter.yml").is_file())

    def it_is_purged(self) -> None:
        self.ok("dpkg", "--remove", "lock-exporter")
        self.assertEqual(self.inside(CONFIGURATION).read_text(), CHANGED)
        self.ok("dpkg", "--purge", "lock-exporter")
        left = {
            str(path.relative_to(self.root.path))
            for top in ("etc", "usr", "var/lib")
            for path in self.inside(top).rglob("*")
            if re.search("lock[-_]exporter", path.name)
        }
        # What the administrator made stays.
        self.assertEqual(left, {"etc/lock-exporter", "etc/lock-exporter/lock_exporter.yml"})


if __name__ == "__main__":
    unittest.main()
