"""The whole chain on real repositories: exporter, Prometheus with the rules, Alertmanager, webhook.

Locks are left behind by a killed restic, damaged, and out of reach; each must arrive as an alert
with the right labels, and be resolved once restic has unlocked. Only the waiting times of the rules
are cut.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import yaml

import board_queries
import checkout
import exporter
import hurried_rules
import restic_repo
import scenes
import servers

# LockScanFailing speaks after this instead of 15 minutes; a scan takes far less.
FRESHNESS_SECONDS = 20
LOCK_AGE_SECONDS = 2400
JOB = "lock-exporter"


class Inbox:
    """What Alertmanager delivered, as a webhook."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alerts: list[dict] = []

    def receive(self, _method: str, _path: str, body: bytes) -> str:
        with self.lock:
            self.alerts += json.loads(body)["alerts"]
        return ""

    def find(self, status: str, alertname: str, target: str) -> dict | None:
        """The newest delivery about this alert, if it has that status."""
        with self.lock:
            about = [
                alert
                for alert in self.alerts
                if alert["labels"]["alertname"] == alertname
                and alert["labels"].get("target") == target
            ]
        return about[-1] if about and about[-1]["status"] == status else None

    def names(self) -> set[tuple[str, str]]:
        with self.lock:
            return {
                (alert["labels"]["alertname"], alert["labels"].get("target", ""))
                for alert in self.alerts
            }


class Flags(unittest.TestCase):
    """What documents and the chart tell people to type is what the exporter takes."""

    def help(self, *command: str) -> str:
        done = subprocess.run(
            [checkout.exporter(), *command, "--help"], capture_output=True, text=True, check=True
        )
        return done.stdout

    def test_commands_of_the_runbooks(self):
        texts = {"check": self.help("check"), "": self.help()}
        for page in [*checkout.RUNBOOKS.glob("*.md"), checkout.CHART / "README.md"]:
            for line in re.findall(r"^ *(lock_exporter .+)$", page.read_text(), re.M):
                with self.subTest(page.name, command=line):
                    command = line.split()[1]
                    text = texts["" if command.startswith("-") else command]
                    for flag in re.findall(r"--[a-z.-]+", line):
                        self.assertIn(f"{flag} ", text)

    def test_arguments_and_environment_of_the_chart(self):
        template = (checkout.CHART / "templates" / "deployment.yaml").read_text()
        text = self.help()
        named = re.findall(r"^ +- (--[a-z.-]+)=", template, re.M)
        named += [f"[env: {name}" for name in re.findall(r"name: (LOCK_EXPORTER_\w+)", template)]
        self.assertEqual(len(named), 5)
        for name in named:
            with self.subTest(name):
                self.assertIn(name, text)


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        try:
            cls.start()
        except BaseException:
            cls.stack.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    @classmethod
    def start(cls):
        checkout.exporter()
        folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.make_repositories(folder)
        config = cls.exporter_config(folder)
        cls.exporter = cls.stack.enter_context(exporter.Exporter(folder, config))
        # Before that, a target is rightly "never scanned", which is not what is tested here.
        readable = set(cls.places) - {"nowhere"}
        servers.wait_for("first scans", lambda: cls.exporter.readable_targets() == readable)
        cls.inbox = Inbox()
        hook = cls.stack.enter_context(servers.HttpServer(cls.inbox.receive))
        cls.alertmanager = cls.stack.enter_context(
            servers.Alertmanager(folder, cls.alertmanager_config(hook.address))
        )
        hurried_rules.write(folder / "rules.yml", FRESHNESS_SECONDS)
        cls.prometheus = cls.stack.enter_context(
            servers.Prometheus(
                folder,
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(folder / "rules.yml")],
                    "alerting": {
                        "alertmanagers": [
                            {
                                "static_configs": [
                                    {"targets": [f"127.0.0.1:{cls.alertmanager.port}"]}
                                ]
                            }
                        ]
                    },
                    "scrape_configs": [
                        {
                            "job_name": JOB,
                            "static_configs": [{"targets": [f"127.0.0.1:{cls.exporter.port}"]}],
                        }
                    ],
                },
            )
        )

    @classmethod
    def make_repositories(cls, folder: Path):
        fixtures = folder / "fixtures"
        made = restic_repo.make_fixtures(
            fixtures, ["v2-nolocks", "stale-killed-exclusive", "broken", "not-a-repository"]
        )
        cls.stack.callback(restic_repo.stop_fixtures, fixtures)
        cls.damaged_files = made["broken"]["expected"]["invalid"]
        repositories = folder / "repositories"
        repositories.mkdir()
        cls.places = {
            name: repositories / name
            for name in ("healthy", "abandoned", "damaged", "moved", "nowhere")
        }
        for name, fixture in {
            "healthy": "v2-nolocks",
            "abandoned": "stale-killed-exclusive",
            "damaged": "broken",
            "moved": "v2-nolocks",
            "nowhere": "not-a-repository",
        }.items():
            shutil.copytree(made[fixture]["path"], cls.places[name], symlinks=True)
        cls.spare = repositories / "spare"
        shutil.copytree(made["v2-nolocks"]["path"], cls.spare)
        cls.abandoned_lock = restic_repo.age_lock(cls.places["abandoned"], LOCK_AGE_SECONDS)

    @classmethod
    def exporter_config(cls, folder: Path) -> dict:
        password = folder / "password"
        password.write_text(restic_repo.PASSWORD + "\n")
        password.chmod(0o600)
        return {
            "scan": {"interval": "1s", "timeout": "30s"},
            "targets": [
                {"name": name, "restic": {"repository": str(place), "password_file": str(password)}}
                for name, place in cls.places.items()
            ],
        }

    @classmethod
    def alertmanager_config(cls, hook: str) -> dict:
        example = yaml.safe_load((checkout.ALERTS / "alertmanager.example.yml").read_text())
        return {
            "route": {
                "receiver": "test",
                "group_by": ["alertname", "target"],
                "group_wait": "1s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [
                {
                    "name": "test",
                    "webhook_configs": [{"url": f"http://{hook}/", "send_resolved": True}],
                }
            ],
            "inhibit_rules": example["inhibit_rules"],
        }

    def delivered(self, status: str, alertname: str, target: str) -> dict:
        try:
            return servers.wait_for(
                f"{alertname} of {target} to be {status}",
                lambda: self.inbox.find(status, alertname, target),
            )
        except AssertionError as error:
            relevant = [line for line in self.exporter.page().splitlines() if f'"{target}"' in line]
            raise AssertionError(
                "\n".join(
                    [
                        str(error),
                        f"delivered: {sorted(self.inbox.names())}",
                        *relevant,
                        self.exporter.tail(),
                    ]
                )
            ) from None

    def labels(self, alertname: str, target: str, severity: str, **others: str) -> dict:
        # Local repositories of two hosts are told apart by the host that watches them.
        return {
            "alertname": alertname,
            "target": target,
            "severity": severity,
            "job": JOB,
            "host": os.uname().nodename,
            **others,
        }

    def check_firing(self):
        stuck = self.delivered("firing", "LockStuckExclusive", "abandoned")
        self.assertEqual(
            stuck["labels"],
            self.labels(
                "LockStuckExclusive",
                "abandoned",
                "critical",
                mode="exclusive",
                hostname=self.abandoned_lock["hostname"],
                username=pwd.getpwuid(os.getuid()).pw_name,
            ),
        )
        described = stuck["annotations"]["description"]
        self.assertIn(f"(pid {self.abandoned_lock['pid']})", described)
        self.assertRegex(described, r"refreshed 4[0-5]m \d+s ago")
        self.assertIn(str(self.places["abandoned"]), described)

        damaged = self.delivered("firing", "LockUnreadable", "damaged")
        self.assertEqual(damaged["labels"], self.labels("LockUnreadable", "damaged", "critical"))
        self.assertIn(f"{self.damaged_files} lock file(s)", damaged["annotations"]["description"])

        never = self.delivered("firing", "LockTargetNeverScanned", "nowhere")
        self.assertEqual(never["labels"]["severity"], "warning")
        self.assertIn("(reason: not_found)", never["annotations"]["description"])

        failing = self.delivered("firing", "LockScanFailing", "moved")
        self.assertEqual(failing["labels"], self.labels("LockScanFailing", "moved", "warning"))
        self.assertRegex(failing["annotations"]["description"], r"\(reason: \w+\)")

    def check_dashboards(self):
        """Every query is accepted; the first line of the overview tells what is the case."""
        for query in board_queries.all_queries():
            with self.subTest(query.where):
                self.prometheus.query(query.filled(job=JOB))
        board = board_queries.boards()["overview.json"]
        stats = {
            query.panel["title"]: int(
                float(self.prometheus.query(query.filled(job=JOB))[0]["value"][1])
            )
            for query in board_queries.queries(board)
            if query.panel and query.panel["type"] == "stat"
        }
        self.assertEqual(
            stats,
            {
                "How many targets refuse backups?": 2,
                "How many targets refuse prune and check?": 2,
                "How many locks are stuck?": 1,
                "How many lock files are damaged?": self.damaged_files,
                "How many targets cannot be read?": 2,
                "How many exporters are blind?": 0,
            },
        )

    def test_alerts_arrive_and_are_resolved(self):
        moved_to = self.places["moved"].with_name("away")
        self.places["moved"].rename(moved_to)
        self.check_firing()
        self.check_dashboards()

        # A person repairs everything.
        restic_repo.unlock(self.places["abandoned"])
        restic_repo.unlock(self.places["damaged"], "--remove-all")
        moved_to.rename(self.places["moved"])
        shutil.rmtree(self.places["nowhere"])
        self.spare.rename(self.places["nowhere"])
        for alertname, target in (
            ("LockStuckExclusive", "abandoned"),
            ("LockUnreadable", "damaged"),
            ("LockScanFailing", "moved"),
            ("LockTargetNeverScanned", "nowhere"),
        ):
            with self.subTest(alertname):
                self.delivered("resolved", alertname, target)
        self.assertEqual([target for _, target in self.inbox.names() if target == "healthy"], [])

    def test_the_exporter_tells_of_itself_what_the_rules_read(self):
        page = scenes.exported([self.exporter.page()])
        for name, labels in scenes.in_scenes().items():
            if name.startswith(scenes.ABOUT_ITSELF):
                with self.subTest(name):
                    self.assertEqual(labels, page.get(name))

    def test_promtool_finds_nothing_in_the_page(self):
        done = subprocess.run(
            [checkout.program("promtool"), "check", "metrics"],
            input=self.exporter.page(),
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
