"""The whole chain on real repositories: exporter, Prometheus with the rules, Alertmanager, webhook.

Locks are left behind by killed restics, damaged, and out of reach; a host loses its backup, an
exporter ends. Each must arrive as an alert with the right labels, and be resolved once a person has
repaired it. Only the waiting times of the rules are cut, by their own parameters.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import yaml

import board_queries
import checkout
import exporter
import hurried_rules
import inbox
import machines
import restic_places
import restic_repo
import scenes
import servers

# LockScanFailing speaks after this instead of 15 minutes; a scan takes far less.
FRESHNESS_SECONDS = 20
LOCK_AGE_SECONDS = 2400
# Backups that take turns may block retention for so long; each of them is much shorter.
TURNS_LIMIT_SECONDS = 30
JOB = "lock-exporter"
# The exporters of other machines. LockExporterAbsent is about the job of the rules alone.
FLEET = "fleet"


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
                        self.assertRegex(text, rf"{flag}\s")

    def test_arguments_and_environment_of_the_chart(self):
        template = (checkout.CHART / "templates" / "_pod.tpl").read_text()
        text = self.help()
        named = re.findall(r"^ *- (--[a-z.-]+)", template, re.M)
        named += [f"[env: {name}" for name in re.findall(r"name: (LOCK_EXPORTER_\w+)", template)]
        self.assertGreater(len(named), 10)
        for name in named:
            with self.subTest(name):
                self.assertIn(name, text)


class Turns:
    """Backups that follow one another, so that there is always a shared lock, until it is ended."""

    def __init__(self, restic: restic_places.Restic, place: restic_places.Folder):
        self.restic = restic
        self.place = place
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        before: restic_places.Holder | None = None
        with contextlib.ExitStack() as stack:
            while not self.over.wait(2):
                holder = stack.enter_context(
                    restic_places.holding(self.restic, self.place, "shared")
                )
                # Only now the one before may go.
                if before:
                    before.finish()
                before = holder
            if before:
                before.finish()

    def __enter__(self) -> "Turns":
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


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
        cls.restic = restic_places.Restic(os.environ["RESTIC_018"])
        folder = cls.folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.make_repositories(folder)
        cls.begun = time.monotonic()
        cls.exporter = cls.stack.enter_context(
            exporter.Exporter(folder, cls.exporter_config(folder))
        )
        # Before that, a target is rightly "never scanned", which is not what is tested here.
        readable = set(cls.places) - {"nowhere"}
        servers.wait_for("first scans", lambda: cls.exporter.readable_targets() == readable)
        cls.inbox = inbox.Inbox()
        hook = cls.stack.enter_context(servers.HttpServer(cls.inbox.receive))
        cls.alertmanager = cls.stack.enter_context(
            servers.Alertmanager(folder, cls.alertmanager_config(hook.address))
        )
        hurried_rules.write(folder / "rules.yml", FRESHNESS_SECONDS)
        cls.scrape(JOB, cls.exporter)
        cls.scrape(FLEET)
        cls.prometheus = cls.stack.enter_context(
            servers.Prometheus(folder, cls.prometheus_config(folder, cls.alertmanager.port))
        )

    @classmethod
    def scrape(cls, job: str, *exporters: exporter.Exporter) -> None:
        """Says which exporters a job has now."""
        groups = [{"targets": [f"127.0.0.1:{each.port}" for each in exporters]}]
        part = cls.folder / f"{job}.part"
        part.write_text(json.dumps(groups))
        part.rename(cls.folder / f"{job}.json")

    @staticmethod
    def prometheus_config(folder: Path, alertmanager_port: int) -> dict:
        alertmanagers = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yml")],
            "alerting": {"alertmanagers": alertmanagers},
            "scrape_configs": [
                {
                    "job_name": job,
                    "file_sd_configs": [
                        {"files": [str(folder / f"{job}.json")], "refresh_interval": "1s"}
                    ],
                }
                for job in (JOB, FLEET)
            ],
        }

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
        fixture_of = {
            "healthy": "v2-nolocks",
            "abandoned": "stale-killed-exclusive",
            "damaged": "broken",
            "moved": "v2-nolocks",
            "nowhere": "not-a-repository",
        }
        cls.places = {name: repositories / name for name in (*fixture_of, "left", "turns")}
        for name, fixture in fixture_of.items():
            shutil.copytree(made[fixture]["path"], cls.places[name], symlinks=True)
        cls.spare = repositories / "spare"
        shutil.copytree(made["v2-nolocks"]["path"], cls.spare)
        template = restic_places.make_template(cls.restic, folder)
        cls.orphaned = restic_places.Folder(repositories / "orphaned")
        for place in (cls.places["left"], cls.places["turns"], cls.orphaned.path):
            shutil.copytree(template, place)
        left = restic_places.Folder(cls.places["left"])
        # Of another host: of this one's the exporter would know at once, and say so instead.
        with restic_places.holding(cls.restic, left, "shared", "web02") as holder:
            holder.kill()
        cls.left_lock = restic_repo.age_lock(cls.places["left"], LOCK_AGE_SECONDS)
        cls.abandoned_lock = restic_repo.age_lock(cls.places["abandoned"], LOCK_AGE_SECONDS)

    @classmethod
    def exporter_config(cls, folder: Path) -> dict:
        password = folder / "password"
        password.write_text(restic_repo.PASSWORD + "\n")
        password.chmod(0o600)
        targets = [
            {"name": name, "restic": {"repository": str(place), "password_file": str(password)}}
            for name, place in cls.places.items()
        ]
        for target in targets:
            if target["name"] == "turns":
                target["hold_limit"] = {"shared": f"{TURNS_LIMIT_SECONDS}s"}
        return {"scan": {"interval": "1s", "timeout": "30s"}, "targets": targets}

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

    def case(self, cause: str, alertname: str, target: str | None) -> inbox.Case:
        return inbox.Case(self.inbox, cause, alertname, target)

    def paged(self, case: inbox.Case) -> dict:
        try:
            return case.wait_for_page()
        except AssertionError as error:
            about = f'"{case.target}"'
            relevant = [line for line in self.exporter.page().splitlines() if about in line]
            delivered = f"delivered: {sorted(self.inbox.names(), key=str)}"
            text = "\n".join([str(error), delivered, *relevant, self.exporter.tail()])
            raise AssertionError(text) from None

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

    def check_stuck(self, case: inbox.Case, severity: str, mode: str, lock: dict):
        stuck = self.paged(case)
        holder = {"hostname": lock["hostname"], "username": pwd.getpwuid(os.getuid()).pw_name}
        self.assertEqual(
            stuck["labels"],
            self.labels(case.alertname, case.target, severity, mode=mode, **holder),
        )
        described = stuck["annotations"]["description"]
        self.assertIn(f"(pid {lock['pid']})", described)
        self.assertRegex(described, r"refreshed 4[0-5]m \d+s ago")
        self.assertIn(str(self.places[case.target]), described)

    def check_firing(self) -> dict[str, inbox.Case]:
        cases = {
            "abandoned": self.case("check killed", "LockStuckExclusive", "abandoned"),
            "left": self.case("backup killed", "LockStuckShared", "left"),
            "damaged": self.case("lock files damaged", "LockUnreadable", "damaged"),
            "nowhere": self.case("no repository there", "LockTargetNeverScanned", "nowhere"),
            "moved": self.case("repository out of reach", "LockScanFailing", "moved").begin(),
        }
        for case in cases.values():
            # What was there before anybody looked began with the first look.
            case.caused = case.caused or self.begun
        self.check_stuck(cases["abandoned"], "critical", "exclusive", self.abandoned_lock)
        self.check_stuck(cases["left"], "warning", "shared", self.left_lock)

        damaged = self.paged(cases["damaged"])
        self.assertEqual(damaged["labels"], self.labels("LockUnreadable", "damaged", "critical"))
        self.assertIn(f"{self.damaged_files} lock file(s)", damaged["annotations"]["description"])

        never = self.paged(cases["nowhere"])
        self.assertEqual(never["labels"]["severity"], "warning")
        self.assertIn("(reason: not_found)", never["annotations"]["description"])

        failing = self.paged(cases["moved"])
        self.assertEqual(failing["labels"], self.labels("LockScanFailing", "moved", "warning"))
        self.assertRegex(failing["annotations"]["description"], r"\(reason: \w+\)")
        return cases

    def check_queries(self):
        """Every query of boards and runbooks is accepted; the overview tells what is the case."""
        for query in board_queries.all_queries():
            with self.subTest(query.where):
                self.prometheus.query(query.filled(job=JOB))
        for page in checkout.RUNBOOKS.glob("*.md"):
            for block in re.findall(r"```promql\n(.*?)```", page.read_text(), re.S):
                for query in block.strip().splitlines():
                    with self.subTest(page.name, query=query):
                        self.prometheus.query(query)
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
                "Backups refused?": 2,
                "Prune, check refused?": 4,
                "Locks stuck?": 2,
                "Files damaged?": self.damaged_files,
                "Targets unknown?": 2,
                "Exporters away?": 0,
            },
        )

    def test_alerts_arrive_and_are_resolved(self):
        self.addCleanup(inbox.print_table, self.inbox)
        moved_to = self.places["moved"].with_name("away")
        self.places["moved"].rename(moved_to)
        turns = self.case("backups without a gap", "LockBlockedTooLong", "turns").begin()
        with Turns(self.restic, restic_places.Folder(self.places["turns"])):
            cases = self.check_firing()
            self.check_queries()
            self.check_repairs(cases, moved_to)
            blocked = self.paged(turns)
            repaired = time.monotonic()
        self.assertEqual(
            blocked["labels"],
            self.labels("LockBlockedTooLong", "turns", "warning", mode="exclusive"),
        )
        turns.wait_for_end(repaired)
        self.check_owner_gone_elsewhere()
        self.check_absent()
        self.assertEqual([name for name in self.inbox.names() if "healthy" in name], [])
        told = {name for name, target in self.inbox.names() if target == "turns"}
        self.assertEqual(told, {"LockBlockedTooLong"})

    def check_repairs(self, cases: dict[str, inbox.Case], moved_to: Path):
        """A person repairs everything."""
        restic_repo.unlock(self.places["abandoned"])
        self.restic.unlock(restic_places.Folder(self.places["left"]), "unlocker")
        restic_repo.unlock(self.places["damaged"], "--remove-all")
        moved_to.rename(self.places["moved"])
        shutil.rmtree(self.places["nowhere"])
        self.spare.rename(self.places["nowhere"])
        repaired = time.monotonic()
        for name, case in cases.items():
            with self.subTest(name):
                case.wait_for_end(repaired)

    def watches(self, machine: machines.Machine, targets: list[dict], **environment: str):
        folder = self.folder / machine.hostname
        folder.mkdir(exist_ok=True)
        config = {"scan": {"interval": "1s", "timeout": "30s"}, "targets": targets}
        return exporter.Exporter(folder, config, environment, machine.inside)

    def looked_at(self, expr: str) -> None:
        """Waits until Prometheus has evaluated the rules several times with this as it is."""
        often = f"count_over_time(({expr})[4s:1s]) >= 4"
        servers.wait_for(expr, lambda: self.prometheus.query(often))

    def check_owner_gone_elsewhere(self):
        """A backup of one machine dies; the exporter of another one sees its lock and no more."""
        place = self.orphaned
        case = self.case("backup killed on another machine", "LockOwnerGoneElsewhere", "orphaned")
        repository = {"repository": place.location, "env": place.environment}
        nothing = {"name": "nothing", "file": {"path": str(self.folder / "nothing")}}
        show = {"LOCK_EXPORTER_COLLECTOR_PROCESS": "true"}
        hold = 'target_mode_pid:lock_hold_refreshed_timestamp_seconds:max{target="orphaned"}'
        watched = 'lock_process_watched{hostname="web01"} == 1'
        quiet = f'{hold} unless on (target) ALERTS{{alertname="LockOwnerGoneElsewhere"}}'
        with (
            machines.Machine("vault", self.folder) as vault,
            machines.Machine("web01", self.folder) as web01,
            self.watches(vault, [{"name": "orphaned", "restic": repository}]) as vault_exporter,
            restic_places.holding(self.restic, place, "shared", before=web01.inside) as holder,
        ):
            (name,) = holder.names
            lock = json.loads(self.restic.run(place, "cat", "lock", name, "--no-lock", "-q"))
            self.assertEqual(lock["hostname"], "web01")
            self.scrape(FLEET, vault_exporter)
            # Nobody knows that machine, then its exporter comes, goes and comes again: silence.
            self.looked_at(f"{quiet} unless on () lock_process_watched")
            with self.watches(web01, [nothing], **show) as own:
                self.scrape(FLEET, vault_exporter, own)
                self.looked_at(f"{quiet} and on () {watched}")
            self.looked_at(f"{quiet} unless on () lock_process_watched")
            with self.watches(web01, [nothing], **show) as own:
                self.scrape(FLEET, vault_exporter, own)
                self.looked_at(f"{quiet} and on () {watched}")
                os.killpg(holder.pid, signal.SIGKILL)
                case.begin()
                page = self.paged(case)
                self.assertEqual(
                    page["labels"],
                    self.labels("LockOwnerGoneElsewhere", "orphaned", "warning", mode="shared")
                    | {"hostname": "web01", "username": lock["username"], "pid": str(lock["pid"])}
                    | {"job": FLEET, "host": "vault"},
                )
                # On that machine restic, too, knows that the process is gone.
                done = subprocess.run(
                    [*web01.inside, *self.restic.command(place, "unlock")],
                    env=os.environ | place.environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                case.wait_for_end(time.monotonic())

    def check_absent(self):
        case = self.case("exporter ended", "LockExporterAbsent", None).begin()
        self.exporter.__exit__()
        page = self.paged(case)
        expected = {"alertname": "LockExporterAbsent", "severity": "critical", "job": JOB}
        self.assertEqual(page["labels"], expected)
        repaired = time.monotonic()
        self.exporter.__enter__()
        self.scrape(JOB, self.exporter)
        case.wait_for_end(repaired)

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
