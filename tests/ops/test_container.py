"""The image without a container engine: the last stages of the Containerfile are carried out in a
root folder of Debian, and what comes out runs there as the image's user, on a read-only root.

What is known of an image here: its files, user and start command. Not its layers, nor how an engine
runs it.
"""

import json
import os
import re
import shlex
import shutil
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import checkout
import debian_root
import restic_repo
import sshd

CONTAINERFILE = checkout.ROOT / "packaging" / "container" / "Containerfile"
BASE = "debian:bookworm-slim"


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, with the stage or image it starts from as the first."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n", " ", text)
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, words = line.split(None, 1)
        if name == "FROM":
            source, _, alias = words.partition(" AS ")
            current = found[alias or "the image"] = []
            words = source
        current.append((name, words))
    return found


@dataclass
class Image:
    """What the instructions of a stage make of a root folder."""

    root: debian_root.DebianRoot
    user: str = "0:0"
    start: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def build(self, stage: str) -> None:
        (_, source), *instructions = stages()[stage]
        if source != BASE:
            self.build(source)
        for name, words in instructions:
            self.carry_out(name, words)

    def carry_out(self, name: str, words: str) -> None:
        match name:
            case "RUN":
                user = "0:0" if self.user == "0" else self.user
                environment = {"DEBIAN_FRONTEND": "noninteractive"}
                done = self.root.run(["sh", "-c", words], user=user, environment=environment)
                assert done.returncode == 0, done.stdout
            case "COPY":
                origin, _, place = words.split()
                assert origin == "--from=build", words
                shutil.copy(checkout.exporter(), self.root.path / place.lstrip("/"))
            case "USER":
                self.user = words
            case "ENTRYPOINT":
                self.start = json.loads(words)
            case "HEALTHCHECK":
                self.health = json.loads(words[words.index("[") :])
            case "EXPOSE" | "STOPSIGNAL" | "ARG" | "LABEL":
                pass
            case _:
                raise AssertionError(f"this test does not know {name}")

    def run(self, *flags: str, **environment: str):
        command = [*self.start, *flags]
        return self.root.run(command, user=self.user, read_only=True, environment=environment)


class Container(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = Image(cls.enterClassContext(debian_root.DebianRoot()))
        cls.image.build("the image")
        folder = tempfile.TemporaryDirectory(prefix="container.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    def test_it_starts_as_its_user(self):
        done = self.image.run("--version")
        self.assertRegex(done.stdout, r"^lock_exporter \d")
        done = self.image.root.run(["id", "-un"], user=self.image.user)
        self.assertEqual(done.stdout, "lock-exporter\n")

    def test_its_root_is_read_only_to_it(self):
        done = self.image.root.run(
            ["touch", "/etc/lock-exporter/x"], user="0:0", read_only=True
        )
        self.assertIn("Read-only file system", done.stdout)

    def test_sftp_works_with_ssh_files_of_the_system(self):
        repository = self.folder / "repository"
        debian_root.make_repository(repository, user="0:0")
        environment = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
        with sshd.Sshd(self.folder) as server:
            files = self.image.root.path / "etc/lock-exporter/ssh"
            server.write_client_files(files, "backup", "/etc/lock-exporter/ssh/id")
            key = files / "id"
            shutil.copy(server.keys / "user", key)
            # As a mounted secret of the user; ssh refuses a key that others may read.
            os.chown(key, *map(int, self.image.user.split(":")))
            key.chmod(0o400)
            done = self.image.run("check", "-r", f"sftp:backup:{repository}", **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"ok +backup\S*repository +free")

    def test_a_user_without_a_name_is_explained(self):
        done = self.image.root.run(
            [*self.image.start, "check", "-r", "sftp:backup:/x"], user="4711:4711", read_only=True
        )
        self.assertEqual(done.returncode, 3)
        self.assertIn("No user exists for uid 4711", done.stdout)

    def test_authorities_of_the_system_are_there(self):
        bundle = self.image.root.path / "etc/ssl/certs/ca-certificates.crt"
        self.assertIn("BEGIN CERTIFICATE", bundle.read_text())

    def test_health_is_told_by_exit_code(self):
        address = "127.0.0.1:10139"
        script = (
            f"{shlex.join(self.image.start)} -r /x --web.listen-address={address} 2>/dev/null & "
            f"for i in $(seq 300); do {shlex.join(self.image.health)} 2>/dev/null && break; "
            "sleep 0.1; done; "
            f"{shlex.join(self.image.health)}; up=$?; kill $!; wait; "
            f"{shlex.join(self.image.health)}; echo up $up down $?"
        )
        done = self.image.root.run(
            ["sh", "-c", script],
            user=self.image.user,
            read_only=True,
            environment={"LOCK_EXPORTER_WEB_LISTEN_ADDRESS": address},
        )
        self.assertIn("up 0 down 1", done.stdout)

    def test_the_variant_has_rclone(self):
        with debian_root.DebianRoot() as root:
            image = Image(root)
            image.build("rclone")
            self.assertEqual(image.user, self.image.user)
            debian_root.make_repository(root.path / "srv/one", user=image.user)
            done = image.run("check", "-r", "rclone::local:/srv/one", HOME="/nonexistent")
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
