"""What is around the program: systemd units, image, compose example, mixin.

Nothing here starts systemd, a container engine or Grafana: their files are read by systemd-analyze,
hadolint, promtool, amtool and jsonnet, and compared with what the program can do.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import _gojsonnet
import yaml

import checkout
import exporter
import restic_repo
import servers
import sshd
import test_rendering

PACKAGING = checkout.ROOT / "packaging"
SYSTEMD = PACKAGING / "systemd"
CONTAINERFILE = PACKAGING / "container" / "Containerfile"
COMPOSE = PACKAGING / "compose"
# Exposure in tenths, as `systemd-analyze security` of systemd 252 counts it; lower is better.
EXPOSURE_MAX = {"lock-exporter.service": 15, "lock-exporter-local.service": 25}
LABELS = (
    "title description authors vendor source url documentation licenses version revision".split()
)


def run(*command, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        **options,
    )


def settings(unit: Path) -> list[tuple[str, str]]:
    lines = [line.split("=", 1) for line in unit.read_text().splitlines()]
    return [(name, value[0]) for name, *value in lines if value and not name.startswith("#")]


def values(unit: Path, name: str) -> list[str]:
    return [value for found, value in settings(unit) if found == name]


class TemporaryFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="packaging.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Units(TemporaryFolder):
    def root(self) -> Path:
        """A root folder with systemd's own units and ours, where every command they name exists."""
        units = self.folder / "usr/lib/systemd/system"
        shutil.copytree("/usr/lib/systemd/system", units, symlinks=True)
        for file in SYSTEMD.glob("*.s*"):
            shutil.copy(file, units)
        for name in ("usr/bin/lock_exporter", "bin/kill"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path("/bin/sh").resolve(), self.folder / name)
        return self.folder

    def test_systemd_understands_every_line(self):
        root = self.root()
        names = [file.name for file in SYSTEMD.glob("*.s*") if file.suffix != ".conf"]
        self.assertGreaterEqual(set(names), set(EXPOSURE_MAX))
        done = run("systemd-analyze", "verify", "--man=no", f"--root={root}", *names)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_drop_ins_are_understood(self):
        root = self.root()
        unit = "lock-exporter.service"
        folder = root / "etc/systemd/system" / f"{unit}.d"
        folder.mkdir(parents=True)
        for file in (SYSTEMD / "examples").glob("*.conf"):
            shutil.copy(file, folder)
        done = run("systemd-analyze", "verify", "--man=no", f"--root={root}", unit)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_they_may_little(self):
        for name, most in EXPOSURE_MAX.items():
            with self.subTest(name):
                done = run(
                    "systemd-analyze",
                    "security",
                    "--offline=true",
                    f"--threshold={most}",
                    SYSTEMD / name,
                )
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_local_unit_differs_only_where_it_must(self):
        remote, local = (dict(settings(SYSTEMD / name)) for name in EXPOSURE_MAX)
        differs = {
            name for name in remote.keys() | local.keys() if remote.get(name) != local.get(name)
        }
        self.assertEqual(
            differs,
            {
                "Description",
                "Conflicts",
                "DynamicUser",
                "User",
                "Group",
                "AmbientCapabilities",
                "CapabilityBoundingSet",
                "ProtectHome",
                "ProtectProc",
                "ProcSubset",
                "PrivateTmp",
                "PrivateUsers",
                "RemoveIPC",
            },
        )
        # What would hide the lock files of others, or /proc/locks.
        self.assertEqual(local["ProcSubset"], "all")
        self.assertEqual(local["PrivateTmp"], "no")

    def test_their_flags_exist(self):
        flags = run(checkout.exporter(), "--help").stdout
        for unit in SYSTEMD.glob("*.service"):
            for command in values(unit, "ExecStart") + values(unit, "ExecStartPre"):
                self.assertTrue(command.removeprefix("-").startswith("/usr/bin/lock_exporter "))
                for flag in re.findall(r" (--[a-z.-]+)", command):
                    with self.subTest(unit=unit.name, flag=flag):
                        self.assertIn(f"{flag} ", flags.replace("\n", " "))

    def test_what_is_wrong_with_one_target_stops_no_start(self):
        """`--config.check` refuses a password file that is missing; watching the rest goes on."""
        for unit in SYSTEMD.glob("*.service"):
            with self.subTest(unit=unit.name):
                self.assertEqual([it[:1] for it in values(unit, "ExecStartPre")], ["-"])

    def test_their_type_is_what_the_program_does(self):
        """A unit of the type `notify` fails when nobody says that the service is ready."""
        said = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            name = self.folder / "notify"
            notified.bind(str(name))
            notified.setblocking(False)
            config = {"targets": [{"name": "one", "restic": {"repository": "/nonexistent"}}]}
            environment = {"NOTIFY_SOCKET": str(name)}
            with exporter.Exporter(self.folder, config, environment):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        said += notified.recv(4096).decode().splitlines()
        self.assertIn("READY=1", said)
        for unit in SYSTEMD.glob("*.service"):
            self.assertEqual(values(unit, "Type"), ["notify"], unit.name)

    def test_the_socket_that_systemd_holds_is_served(self):
        """By systemd's own program that passes sockets; systemd itself does not run here."""
        (listen,) = values(SYSTEMD / "lock-exporter.socket", "ListenStream")
        self.assertEqual(listen, "10130")
        port = servers.free_port()
        activator = subprocess.Popen(
            [
                *("systemd-socket-activate", f"--listen=127.0.0.1:{port}"),
                *(checkout.exporter(), "--web.systemd-socket", "--repo=/nonexistent"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # The first connection starts it, and is served when it has started.
            url = f"http://127.0.0.1:{port}/-/healthy"
            self.assertTrue(servers.wait_for("an answer", lambda: servers.get(url)))
        finally:
            # It has become the exporter.
            activator.terminate()
            activator.wait(30)
        self.assertEqual(activator.returncode, 0)

    def test_the_user_can_be_made(self):
        file = SYSTEMD / "lock-exporter.sysusers.conf"
        etc = self.folder / "etc"
        etc.mkdir()
        done = run("systemd-sysusers", f"--root={self.folder}", file)
        self.assertEqual(done.returncode, 0, done.stdout)
        users = {line.split(":")[0] for line in (etc / "passwd").read_text().splitlines()}
        users_wanted = values(SYSTEMD / "lock-exporter-local.service", "User")
        self.assertLessEqual(set(users_wanted), users)

    def allowed_calls(self) -> set[str]:
        """The system calls of the units' filter, which is the same in both."""
        groups: dict[str, set[str]] = {}
        name = ""
        for line in run("systemd-analyze", "syscall-filter").stdout.splitlines():
            if line.startswith("@"):
                name = line.strip()
                groups[name] = set()
            elif line.startswith(" ") and not line.strip().startswith("#"):
                groups[name].add(line.strip())

        def calls(group: str) -> set[str]:
            return {
                call
                for member in groups[group]
                for call in (calls(member) if member.startswith("@") else {member})
            }

        allow, deny = values(SYSTEMD / "lock-exporter.service", "SystemCallFilter")
        allowed = calls(allow) | calls("@default")
        for group in deny.removeprefix("~").split():
            allowed -= calls(group)
        return allowed

    def test_the_filter_allows_what_the_exporter_and_ssh_call(self):
        repository = self.folder / "repository"
        environment = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
        restic_repo.run([restic_repo.restic(), "init", "-r", str(repository)], **environment)
        trace = self.folder / "trace"
        with sshd.Sshd(self.folder) as server:
            files = self.folder / "client"
            server.write_client_files(files, "backup", str(server.keys / "user"))
            ssh = f"ssh -F {files}/config -o UserKnownHostsFile={files}/known_hosts"
            done = run(
                *("strace", "-f", "-qq", "-o", trace, checkout.exporter(), "check"),
                *("-o", f"sftp.command={ssh} backup -s sftp", "-r", f"sftp:backup:{repository}"),
                env=os.environ | environment,
            )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("free", done.stdout)
        made = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
        self.assertIn("execve", made)
        self.assertEqual(made - self.allowed_calls(), set())


class Image(unittest.TestCase):
    def test_hadolint_has_nothing_to_say(self):
        program = Path(sys.executable).with_name("hadolint")
        done = run(program, "--no-color", CONTAINERFILE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_it_is_labelled_and_ends_without_rights(self):
        text = CONTAINERFILE.read_text()
        for label in LABELS:
            with self.subTest(label):
                self.assertRegex(text, rf"org\.opencontainers\.image\.{label}=\S")
        users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
        self.assertEqual(users[-1], "65532:65532")
        # Words in brackets start without a shell, so signals arrive.
        for instruction in ("ENTRYPOINT", "CMD"):
            self.assertRegex(text, rf"{instruction} \[\"/usr/bin/lock_exporter\"")
        self.assertIn("STOPSIGNAL SIGTERM", text)

    def test_its_version_is_that_of_the_crate(self):
        crate = re.search(r'^version = "(.+)"$', (checkout.ROOT / "Cargo.toml").read_text(), re.M)
        image = re.search(r"^ARG VERSION=(.+)$", CONTAINERFILE.read_text(), re.M)
        self.assertEqual(image[1], crate[1])


class Compose(TemporaryFolder):
    def setUp(self):
        super().setUp()
        self.compose = yaml.safe_load((COMPOSE / "compose.yml").read_text())

    def mounts(self):
        for name, service in self.compose["services"].items():
            for volume in service["volumes"]:
                source, place, *_ = volume.replace(":-", "\0").split(":")
                yield name, source.replace("\0", ":-"), place

    def test_what_is_mounted_is_there(self):
        volumes = set(self.compose["volumes"])
        for name, source, _ in self.mounts():
            with self.subTest(service=name, source=source):
                source = re.sub(r"^\$\{\w+:-(.+)\}$", r"\1", source)
                if source.startswith("."):
                    self.assertTrue((COMPOSE / source).exists())
                else:
                    self.assertIn(source, volumes)

    def test_ports_are_open_on_this_machine_only(self):
        for name, service in self.compose["services"].items():
            for port in service["ports"]:
                with self.subTest(name):
                    self.assertTrue(port.startswith("127.0.0.1:"))

    def test_the_exporter_has_no_more_rights_than_in_the_unit(self):
        service = self.compose["services"]["lock-exporter"]
        self.assertTrue(service["read_only"])
        self.assertEqual(service["cap_drop"], ["ALL"])
        build = service["build"]
        self.assertEqual((COMPOSE / build["context"]).resolve(), checkout.ROOT)
        self.assertTrue((checkout.ROOT / build["dockerfile"]).is_file())

    def test_every_program_accepts_its_file(self):
        shutil.copy(COMPOSE / "prometheus.yml", self.folder)
        shutil.copy(checkout.ALERTS / "rules.yml", self.folder)
        for command in (
            ["promtool", "check", "config", self.folder / "prometheus.yml"],
            ["amtool", "check-config", COMPOSE / "alertmanager.yml"],
            [
                checkout.exporter(),
                "--config.check",
                f"--config.file={COMPOSE / 'lock_exporter.yml'}",
            ],
        ):
            done = run(*command)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_grafana_finds_its_source_and_its_dashboards(self):
        # Grafana ignores keys that it does not know, so a slip would go unnoticed.
        sources = yaml.safe_load((COMPOSE / "grafana/datasources.yml").read_text())
        (source,) = sources["datasources"]
        self.assertEqual(set(source), {"name", "uid", "type", "access", "url", "isDefault"})
        host = re.fullmatch(r"http://([a-z]+):9090", source["url"])[1]
        self.assertIn(host, self.compose["services"])
        boards = yaml.safe_load((COMPOSE / "grafana/dashboards.yml").read_text())
        (provider,) = boards["providers"]
        self.assertEqual(set(provider), {"name", "folder", "type", "options"})
        places = {place for name, _, place in self.mounts() if name == "grafana"}
        self.assertIn(provider["options"]["path"], places)
        for kind in ("datasources", "dashboards"):
            self.assertIn(f"/etc/grafana/provisioning/{kind}/lock-exporter.yml", places)
        self.assertEqual((sources["apiVersion"], boards["apiVersion"]), (1, 1))

    def test_prometheus_scrapes_the_exporter_under_the_name_that_alerts_know(self):
        config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
        (job,) = config["scrape_configs"]
        self.assertEqual(job["job_name"], "lock-exporter")
        (targets,) = job["static_configs"]
        self.assertEqual(targets["targets"], ["lock-exporter:10130"])


class Examples(TemporaryFolder):
    def test_the_example_of_a_configuration_is_right(self):
        text = (PACKAGING / "examples/lock_exporter.yml").read_text()
        # The files that it names are the reader's.
        for name in re.findall(r"_file: (\S+)", text):
            stand_in = self.folder / Path(name).name
            stand_in.write_text("A=b\n")
            text = text.replace(name, str(stand_in))
        file = self.folder / "lock_exporter.yml"
        file.write_text(text)
        done = run(checkout.exporter(), "--config.check", f"--config.file={file}")
        self.assertEqual(done.returncode, 0, done.stdout)


class Mixin(unittest.TestCase):
    FILE = PACKAGING / "mixin" / "mixin.libsonnet"

    def mixin(self, config: dict) -> dict:
        # Its fields are hidden, as those of mixins are.
        keys = ("prometheusAlerts", "prometheusRules", "grafanaDashboards")
        shown = ", ".join(f"{key}: mixin.{key}" for key in keys)
        changed = f"(import '{self.FILE}') + {{ _config+:: {json.dumps(config)} }}"
        text = f"local mixin = {changed}; {{{shown}}}"
        return json.loads(_gojsonnet.evaluate_snippet("mixin", text))

    def test_it_has_all_dashboards(self):
        boards = {file.name for file in checkout.DASHBOARDS.glob("*.json")}
        found = set(self.mixin({})["grafanaDashboards"])
        self.assertEqual(found, boards, f"name them all in {self.FILE}")

    def test_its_rules_are_those_of_render(self):
        for parameters in ({}, test_rendering.OTHERS):
            mixin = self.mixin(parameters)
            found = [
                rule
                for key in ("prometheusRules", "prometheusAlerts")
                for group in mixin[key]["groups"]
                for rule in group["rules"]
            ]
            expected = test_rendering.rules_of(test_rendering.rendered(parameters))
            with self.subTest(parameters=parameters):
                self.assertEqual(found, expected)

    def test_a_name_that_is_none_is_told(self):
        for config in ({"jobname": "a"}, {"disabled": {"LockStuck": True}}):
            with self.subTest(config), self.assertRaisesRegex(RuntimeError, "no such parameter"):
                self.mixin(config)


if __name__ == "__main__":
    unittest.main()
