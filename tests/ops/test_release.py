"""What packaging/release makes, and that the same commit makes the same bytes.

No program is built here: a stand-in is packed. The chart is packed and signed by Helm's own
library, with a key that lives as long as the test.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import helm_python
import yaml

import chart
import checkout

# A time that is neither now nor that of a commit.
EPOCH = 1_700_000_000
PROGRAM = "#!/bin/sh\necho lock_exporter\n"
# Folders that are no part of the source.
NO_SOURCE = shutil.ignore_patterns("target", ".git", ".tools", "node_modules", "__pycache__")
KEY = "releases <releases@lock-exporter.invalid>"


def release(root: Path, out: Path, **environment: str) -> str:
    """Runs packaging/release; what it said on standard error."""
    done = subprocess.run(
        [root / "packaging" / "release", out],
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="release.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.program = cls.folder / "program"
        cls.program.write_text(PROGRAM)
        helm = cls.folder / "helm"
        packer = Path(__file__).with_name("helm_package.py")
        helm.write_text(f'#!/bin/sh\nexec {sys.executable} {packer} "$@"\n')
        helm.chmod(0o755)
        cls.environment = {"PROGRAM": str(cls.program), "HELM": str(helm)}
        cls.out = cls.folder / "out"
        cls.said = release(checkout.ROOT, cls.out, **cls.environment)
        (cls.archive,) = cls.out.glob("*.tar.gz")

    def test_the_checksums_are_right_and_complete(self):
        sums = dict(
            reversed(line.split(maxsplit=1))
            for line in (self.out / "SHA256SUMS").read_text().splitlines()
        )
        files = {path.name: path for path in self.out.iterdir() if path.name != "SHA256SUMS"}
        self.assertEqual(set(sums), set(files))
        for name, path in files.items():
            self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), sums[name])

    def test_another_place_another_time_and_another_mask_make_the_same_bytes(self):
        root = self.folder / "elsewhere"
        shutil.copytree(checkout.ROOT, root, symlinks=True, ignore=NO_SOURCE)
        for path in root.rglob("*"):
            if not path.is_symlink():
                os.utime(path, (EPOCH + 99, EPOCH + 99))
        out = self.folder / "again"
        mask = os.umask(0o077)
        try:
            release(root, out, **self.environment)
        finally:
            os.umask(mask)
        self.assertEqual(
            (out / "SHA256SUMS").read_text(), (self.out / "SHA256SUMS").read_text()
        )

    def test_the_archive_has_what_a_machine_without_packages_needs(self):
        with tarfile.open(self.archive) as archive:
            members = {member.name: member for member in archive}
            top = self.archive.name.removesuffix(".tar.gz")
            text = archive.extractfile(f"{top}/lock_exporter").read().decode()
            notices = archive.extractfile(f"{top}/THIRD-PARTY.txt").read().decode()
        self.assertRegex(top, r"^lock_exporter-\d+\.\d+\.\d+\.linux-\w+$")
        self.assertEqual(text, PROGRAM)
        packaging = checkout.ROOT / "packaging"
        wanted = {"LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md", "alerts/rules.yml"}
        wanted |= {"man/lock_exporter.1", "examples/lock_exporter.yml", "systemd/default"}
        wanted |= {f"completions/{path.name}" for path in (packaging / "completions").iterdir()}
        wanted |= {f"systemd/{path.name}" for path in (packaging / "systemd").glob("*.*")}
        wanted |= {f"dashboards/{path.name}" for path in checkout.DASHBOARDS.glob("*.json")}
        docs = checkout.ROOT / "docs"
        wanted |= {f"docs/{path.relative_to(docs)}" for path in docs.rglob("*.md")}
        self.assertEqual({f"{top}/{name}" for name in wanted} - set(members), set())
        for member in members.values():
            with self.subTest(member.name):
                self.assertEqual((member.uid, member.gid, member.mtime), (0, 0, EPOCH))
                self.assertTrue(member.name == top or member.name.startswith(f"{top}/"))
                executable = member.isdir() or member.name == f"{top}/lock_exporter"
                self.assertEqual(member.mode, 0o755 if executable else 0o644)
        for package in ("tokio", "rustls", "zstd-sys"):
            self.assertRegex(notices, rf"(?m)^{package} \d\S*: \S+")
        # What only tests need is not in the program.
        self.assertNotIn("proptest", notices)

    def test_what_is_left_out_is_told(self):
        said = release(
            checkout.ROOT, self.folder / "bare", PROGRAM=str(self.program), HELM="", CARGO_DEB=""
        )
        if not shutil.which("helm"):
            self.assertIn("left out: the chart", said)
        if not shutil.which("cargo-deb"):
            self.assertIn("left out: the Debian package", said)

    def test_a_folder_with_something_in_it_is_left_alone(self):
        done = subprocess.run(
            [checkout.ROOT / "packaging" / "release", self.out], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty", done.stderr)

    def test_a_signed_chart_names_the_key_and_an_unsigned_one_none(self):
        def gpg(*arguments: str) -> bytes:
            home = self.folder / "gpg"
            home.mkdir(mode=0o700, exist_ok=True)
            command = ["gpg", "--batch", "--quiet", "--homedir", str(home), *arguments]
            return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout

        def about(out: Path) -> dict:
            (package,) = out.glob("lock-exporter-*.tgz")
            with tarfile.open(package) as archive:
                text = archive.extractfile("lock-exporter/Chart.yaml").read()
            return yaml.safe_load(text)["annotations"]

        self.assertNotIn("artifacthub.io/signKey", about(self.out))
        self.assertEqual(list(self.out.glob("*.prov")), [])

        gpg("--passphrase", "", "--quick-gen-key", KEY, "ed25519", "sign", "never")
        self.addCleanup(
            subprocess.run, ["gpgconf", "--homedir", str(self.folder / "gpg"), "--kill", "all"]
        )
        secret, public = self.folder / "secret.gpg", self.folder / "public.gpg"
        secret.write_bytes(gpg("--export-secret-keys"))
        public.write_bytes(gpg("--export"))
        out = self.folder / "signed"
        release(
            checkout.ROOT,
            out,
            HELM_SIGN_KEY="releases",
            HELM_KEYRING=str(secret),
            HELM_SIGN_KEY_URL="https://lock-exporter.invalid/key.asc",
            **self.environment,
        )
        (package,) = out.glob("lock-exporter-*.tgz")
        verified = helm_python.verify(str(package), str(public))
        self.assertEqual(verified["signed_by"], [KEY])
        named = yaml.safe_load(about(out)["artifacthub.io/signKey"])
        listed = gpg("--list-keys", "--with-colons").decode()
        self.assertEqual(named["fingerprint"], re.search(r"^fpr:+(\w+):", listed, re.M)[1])
        self.assertEqual(named["url"], "https://lock-exporter.invalid/key.asc")
        # What was packed for a release is what the checkout has.
        given = chart.values("monitoring")
        self.assertEqual(chart.render_files(given, package), chart.render_files(given))


if __name__ == "__main__":
    unittest.main()
