"""Every query of the dashboards is answered by a real Prometheus, and says what is so.

It scrapes a running exporter in real situations, the exporter's golden pages, and scenes of all
that cannot be made here: outages, pairs, shards, clusters, hostile names, 5,000 targets.
"""

import contextlib
import fcntl
import json
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import board_queries
import checkout
import exporter
import hurried_rules
import scenes
import servers
from board_queries import BoardQuery

# What Grafana fills in for half a minute of a Prometheus that scrapes every two seconds.
RANGE_SECONDS = 30
SHORT = {"__range": f"{RANGE_SECONDS}s", "__interval": "1s", "__rate_interval": "8s"}

FLEET = 5000
# More lines or rows than this help nobody.
SERIES_MAX = 100

# Scenes that have a cluster, so that each column for it has something to show.
LABELLED = {"stuck", "outage", "files", "restarted"}

VERDICTS = ("held", "alive", "overdue", "doomed", "stuck", "gone", "damaged")


def ask(prometheus: servers.Prometheus, query: BoardQuery, **values: str) -> list[dict]:
    """Series of a panel or annotation, values of a variable: as Grafana asks for them."""
    expr = query.filled(**SHORT, **values)
    now = time.time()
    if query.kind == "values":
        path = f"label/{query.label}/values"
        asked = {"match[]": expr, "start": str(now - RANGE_SECONDS), "end": str(now)}
    elif query.kind == "query":
        path, asked = "query", {"query": expr, "time": str(now)}
    else:
        path = "query_range"
        start = now - RANGE_SECONDS
        asked = {"query": expr, "start": str(start), "end": str(now), "step": "1"}
    try:
        url = f"{prometheus.url}/api/v1/{path}?" + urllib.parse.urlencode(asked)
        with urllib.request.urlopen(url, timeout=servers.DEADLINE_SECONDS) as answer:
            data = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query.where}: {error.read().decode()}\n{expr}") from None
    if query.kind == "values":
        return [{"metric": {query.label: value}} for value in data if value]
    return data["result"]


def last(series: dict) -> float:
    return float((series.get("value") or series["values"][-1])[1])


def find(board: str, place: str, ref: str = "A") -> BoardQuery:
    """The query of one panel."""
    title = f"Locks / {board}"
    (found,) = (
        query
        for query in board_queries.all_queries()
        if (query.board, query.place, query.ref) == (title, place, ref)
    )
    return found


def golden_pages() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(checkout.GOLDEN.glob("*.prom"))}


class Demo(servers.Server):
    """The exporter's own demonstration: repositories with locks of every kind."""

    def __init__(self, folder: Path):
        super().__init__(
            "demo",
            folder,
            lambda port: [
                checkout.exporter(),
                "demo",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
        )


class LockFiles:
    """Lock files that are really held, waited for, deleted under their holder, and not held."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.stack = contextlib.ExitStack()

    def hold(self, name: str) -> Path:
        file = self.folder / name
        handle = self.stack.enter_context(file.open("w"))
        fcntl.flock(handle, fcntl.LOCK_EX)
        return file

    def __enter__(self):
        waited_for = self.hold("waited-for")
        waiter = subprocess.Popen([checkout.program("flock"), waited_for, "true"])
        self.stack.callback(waiter.wait)
        self.stack.callback(waiter.terminate)
        self.hold("daemon")
        (self.folder / "idle-daemon").touch()
        replaced = self.hold("replaced")
        replaced.unlink()
        replaced.touch()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def config(self) -> dict:
        def target(name: str, **more: str) -> dict:
            return {
                "name": name,
                "interval": "1s",
                "file": {"path": str(self.folder / name)} | more,
            }

        nowhere = {
            "name": "nowhere",
            "interval": "1s",
            "restic": {"repository": str(self.folder / "nowhere"), "password_env": "PASSWORD"},
        }
        return {
            "targets": [
                target("waited-for"),
                target("replaced"),
                target("daemon", role="daemon"),
                target("idle-daemon", role="daemon"),
                nowhere,
            ]
        }


def fleet_page() -> str:
    """5,000 targets: a third locked, some stuck, some damaged, some that nobody can read."""
    targets = []
    for number in range(FLEET):
        name = f"target-{number:04}"
        if number % 50 == 0:
            targets.append(scenes.Target(name, "unknown", failing="timeout", succeeded=2000))
        elif number % 51 == 0:
            targets.append(scenes.Target(name, "exclusive", (scenes.DEAD,)))
        elif number % 53 == 0:
            targets.append(scenes.Target(name, "exclusive", unreadable=1))
        elif number % 7 == 0:
            targets.append(
                scenes.lock_file(name, "exclusive", scenes.APT, waiters=1, host=f"host{number}")
            )
        elif number % 3 == 0:
            targets.append(scenes.Target(name, "shared", (scenes.BACKUP,)))
        else:
            targets.append(scenes.Target(name))
    return scenes.render(scenes.page(*targets)(time.time()))


class Answers(unittest.TestCase):
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
    def serve(cls, page) -> str:
        server = servers.HttpServer(lambda _method, _path, _body: page())
        return cls.stack.enter_context(server).address

    @classmethod
    def scene(cls, pages: list[scenes.Page], **labels: str) -> list[dict]:
        return [
            {
                "targets": [cls.serve(lambda page=page: scenes.render(page(time.time())))],
                "labels": labels,
            }
            for page in pages
        ]

    @classmethod
    def start(cls):
        folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        found: dict[str, list[dict]] = {}
        for name, pages in scenes.SCENES.items():
            labels = {"cluster": "north"} if name in LABELLED else {}
            found[name] = cls.scene(pages, **labels)
        # One exporter of the outage is gone altogether.
        gone = f"127.0.0.1:{servers.free_port()}"
        found["outage"].append({"targets": [gone], "labels": {"cluster": "north"}})
        found["clusters"] = [
            group
            for cluster in ("east", "west")
            for group in cls.scene(scenes.SCENES["pair"], cluster=cluster)
        ]
        # The exporter's own pages: their ages are long past, their shapes are the real ones.
        for name, text in golden_pages().items():
            found[f"golden-{name}"] = [{"targets": [cls.serve(lambda text=text: text)]}]
        found["real"] = cls.start_exporters(folder)
        # Another program under a job of its own, which is none of ours, and is away.
        found["foreign"] = [{"targets": [f"127.0.0.1:{servers.free_port()}"]}]
        jobs = [
            {"job_name": name, "static_configs": groups, "scrape_interval": "2s"}
            for name, groups in found.items()
        ]
        # The golden pages together, and as with All everything together.
        cls.scenes = [*scenes.SCENES, "clusters", "real", "golden-.+", ".+"]
        hurried_rules.write(folder / "rules.yml")
        cls.prometheus = cls.stack.enter_context(
            servers.Prometheus(
                folder,
                {
                    "global": {"evaluation_interval": "1s"},
                    "rule_files": [str(folder / "rules.yml")],
                    "scrape_configs": jobs,
                },
            )
        )

    @classmethod
    def start_exporters(cls, folder: Path) -> list[dict]:
        (folder / "files").mkdir()
        files = cls.stack.enter_context(LockFiles(folder / "files"))
        watcher = exporter.Exporter(folder, files.config(), {"PASSWORD": "none"})
        running = (cls.stack.enter_context(watcher), cls.stack.enter_context(Demo(folder)))
        return [{"targets": [f"127.0.0.1:{server.port}"]} for server in running]

    def ask(self, query: BoardQuery, job: str, **values: str) -> list[dict]:
        return ask(self.prometheus, query, job=job, **values)

    def wait_for_scrapes(self) -> None:
        def scraped():
            jobs = {sample["metric"]["job"] for sample in self.prometheus.query("up")}
            return {*scenes.SCENES, "clusters", "real", "foreign"} <= jobs

        servers.wait_for("a scrape of each scene", scraped)

    # ---- all queries ----

    def test_every_query_is_answered_somewhere_and_refused_nowhere(self):
        queries = board_queries.all_queries()
        # Scenes that answered, and the largest answer.
        answered: dict[str, set[str]] = {query.where: set() for query in queries}
        largest: dict[str, int] = {query.where: 0 for query in queries}
        # By panel, since the columns of a table may come from any of its queries.
        labels: dict[tuple[str, str], set[str]] = {}

        def unseen(query: BoardQuery) -> set[str]:
            seen = labels.get((query.board, query.place), set())
            return board_queries.labels_shown(query) - seen

        def missing() -> list[BoardQuery]:
            return [query for query in queries if not answered[query.where] or unseen(query)]

        def note(query: BoardQuery) -> None:
            for scene in self.scenes:
                series = self.ask(query, scene)
                if series:
                    answered[query.where].add(scene)
                    largest[query.where] = max(largest[query.where], len(series))
                for one in series:
                    labels.setdefault((query.board, query.place), set()).update(one["metric"])

        self.wait_for_scrapes()
        for query in queries:
            note(query)

        def complete() -> bool:
            # A rate needs two scrapes, a restart some seconds, an alert its rules.
            for query in missing():
                note(query)
            return not missing()

        try:
            servers.wait_for("answers to all queries", complete)
        except AssertionError:
            self.fail(
                "\n".join(
                    f"{query.where}: scenes {sorted(answered[query.where])}, "
                    f"never labelled {sorted(unseen(query))}"
                    for query in missing()
                )
            )
        print(f"\n{'query':92} {'asked as':11} {'scenes':>6} {'series':>6}")
        for query in queries:
            counts = f"{len(answered[query.where]):6} {largest[query.where]:6}"
            print(f"{query.where[:92]:92} {query.kind:11} {counts}")
        print(f"{len(queries)} queries, asked of {len(self.scenes)} scenes each")

    def test_nothing_is_said_of_what_nobody_watches(self):
        """A zero would be green. `foreign` is a job of another program, away."""
        for query in board_queries.all_queries():
            if query.kind == "values":
                continue
            for job in ("foreign", "nobody"):
                with self.subTest(query.where, job=job):
                    self.assertEqual(self.ask(query, job), [])

    def test_every_golden_page_is_taken(self):
        """Duplicate series or a bad line would fail the scrape."""

        def up():
            found = self.prometheus.query('up{job=~"golden-.+"}')
            return len(found) == len(golden_pages()) and found

        for sample in servers.wait_for("the golden pages", up):
            with self.subTest(sample["metric"]["job"]):
                self.assertEqual(sample["value"][1], "1")

    def test_rules_meet_no_error(self):
        """Many-to-many matches and the like show only when a rule is evaluated."""

        def rules():
            groups = servers.get_json(f"{self.prometheus.url}/api/v1/rules")["data"]["groups"]
            found = [rule for group in groups for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else None

        for rule in servers.wait_for("the rules to be evaluated", rules):
            with self.subTest(rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))

    # ---- what they say ----

    def expect(self, what: str, expected, look) -> None:
        """Waits until it is so, since a scrape may be under way; then says what is wrong."""
        try:
            servers.wait_for(what, lambda: look() == expected, 30)
        except AssertionError:
            self.assertEqual(look(), expected)

    def test_the_first_line_counts_right(self):
        expected = {
            #           backups prune stuck damaged unknown away
            "free": (0, 0, 0, 0, 0, 0),
            "shared": (0, 1, 0, 0, 0, 0),
            "exclusive": (1, 2, 0, 0, 0, 0),
            "stuck": (3, 4, 3, 2, 0, 0),
            "sealed": (0, 1, 1, 0, 1, 0),
            "outage": (0, 1, 0, 0, 4, 1),
            "files": (1, 1, 1, 0, 1, 0),
            "pair": (1, 1, 0, 0, 0, 0),
            "clusters": (2, 2, 0, 0, 0, 0),
            "shards": (1, 2, 1, 0, 0, 0),
            # All (`.+`) leaves out the name with a line break, which the exporter never writes.
            "hostile": (8, 8, 0, 0, 0, 0),
            # live-exclusive, stale, unreadable, job, waited-for; with sealed, live-shared
            "real": (5, 7, 1, 1, 2, 0),
        }
        board = board_queries.boards()["overview.json"]
        stats = [q for q in board_queries.queries(board) if q.panel and q.panel["type"] == "stat"]
        self.assertEqual(len(stats), 6)

        def counts(scene: str) -> tuple[int, ...]:
            return tuple(int(last(self.ask(stat, scene)[0])) for stat in stats)

        for scene, wanted in expected.items():
            with self.subTest(scene):
                self.expect(scene, wanted, lambda scene=scene: counts(scene))

    def test_each_hold_is_listed_once_with_what_to_do(self):
        expected = {
            "free": [],
            "shared": [("a", "web01", "alive")],
            "exclusive": [("a", "db01", "alive"), ("own", "web01", "alive")],
            "stuck": [
                ("a", "db02", "stuck"),
                ("b", "web01", "alive"),
                ("b", "web02", "stuck"),
                ("c", "", "damaged"),
                ("d", "web01", "gone"),
            ],
            "sealed": [("a", "", "stuck")],
            # Last seen alive: nobody has looked since.
            "outage": [("b", "web01", "alive")],
            "files": [("agent", "web01", "held"), ("apt", "web01", "stuck")],
            "pair": [("a", "db01", "alive")],
            "clusters": [("a", "db01", "alive")] * 2,
            "shards": [("a", "web01", "alive"), ("b", "db02", "stuck")],
        }
        table = find("Overview", "Who blocks what, since when, and what to do?")

        def listed(scene: str) -> list[tuple[str, str, str]]:
            return sorted(
                (
                    row["metric"]["target"],
                    row["metric"].get("hostname", ""),
                    VERDICTS[int(last(row))],
                )
                for row in self.ask(table, scene)
            )

        for scene, wanted in expected.items():
            with self.subTest(scene):
                self.expect(scene, wanted, lambda scene=scene: listed(scene))

    def test_the_running_exporter_is_read_right(self):
        table = find("Overview", "Who blocks what, since when, and what to do?")

        def verdicts() -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for row in self.ask(table, "real"):
                found.setdefault(row["metric"]["target"], set()).add(VERDICTS[int(last(row))])
            return found

        self.expect(
            "the demonstration's locks",
            {
                "live-shared": {"alive"},
                "live-exclusive": {"alive"},
                "stale": {"stuck"},
                "unreadable": {"alive", "damaged"},
                "sealed": {"alive"},
                "job": {"held"},
                "waited-for": {"held"},
                "daemon": {"held"},
            },
            verdicts,
        )
        for place, wanted in (
            ("Requests waiting?", 1),
            ("Files replaced?", 1),
            ("Daemons not holding?", 1),
        ):
            with self.subTest(place):
                stat = find("File locks", place)
                self.expect(place, wanted, lambda stat=stat: last(self.ask(stat, "real")[0]))

    def test_the_timeline_shows_the_state(self):
        timeline = find("Overview", "When was what locked?")
        for scene, target, state in (
            ("free", "a", 1),
            ("shared", "a", 2),
            ("exclusive", "a", 3),
            ("outage", "a", 0),
            # One of the pair cannot read it: the other one knows.
            ("pair", "a", 3),
            ("sealed", "a", 0),
            ("files", "remote", 0),
            # A daemon's lock is meant to be held.
            ("files", "agent", 5),
            ("files", "idle-agent", 7),
        ):
            with self.subTest(scene):

                def shown(scene=scene, target=target):
                    return [last(series) for series in self.ask(timeline, scene, target=target)]

                self.expect(f"state {state}", [state], shown)

    def test_sources_and_backends_narrow_every_panel(self):
        for query in board_queries.all_queries():
            if not query.panel or "$backend" not in query.expr:
                continue
            with self.subTest(query.where):
                for other in ({"backend": "sftp"}, {"source": "file"}):
                    # Zeros may stay.
                    found = [one for one in self.ask(query, "shared", **other) if last(one)]
                    self.assertEqual(found, [])

    def test_any_name_can_be_chosen(self):
        timeline = find("Target", "When was what locked?")
        holds = find("Target", "Who holds it, since when, and what to do?", "C")
        for query in (timeline, holds):
            for names in (*((name,) for name in scenes.HOSTILE_NAMES), scenes.HOSTILE_NAMES[:4]):
                with self.subTest(query.where, names=names):

                    def found(query=query, names=names) -> list[str]:
                        target = board_queries.chosen(*names)
                        rows = self.ask(query, "hostile", target=target)
                        return sorted(row["metric"]["target"] for row in rows)

                    self.expect("the chosen targets", sorted(names), found)

    def test_without_the_feature_toggle_only_quotes_cannot_be_chosen(self):
        timeline = find("Target", "When was what locked?")
        for name in scenes.HOSTILE_NAMES:
            with self.subTest(name):
                target = board_queries.chosen(name, quotes=False)
                if '"' in name:
                    with self.assertRaises(AssertionError):
                        self.ask(timeline, "hostile", target=target)
                else:
                    self.assertEqual(len(self.ask(timeline, "hostile", target=target)), 1)




class Fleet(unittest.TestCase):
    """A Prometheus of its own: what it scrapes is large."""

    def test_5000_targets_stay_readable(self):
        page = fleet_page()
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = servers.HttpServer(lambda _method, _path, _body: page)
            job = {
                "job_name": "fleet",
                "static_configs": [{"targets": [stack.enter_context(server).address]}],
                "scrape_interval": "1m",
                "scrape_timeout": "1m",
            }
            prometheus = stack.enter_context(
                servers.Prometheus(folder, {"scrape_configs": [job]})
            )
            # What a page means does not matter here, only how much of it is drawn.
            servers.wait_for(
                "the fleet", lambda: prometheus.query(f"count(lock_target_info) == {FLEET}")
            )
            counts = {}
            for query in board_queries.all_queries():
                # The board about one target has no All.
                one = {"target": "target-0051"} if query.board == "Locks / Target" else {}
                if query.panel:
                    counts[query.where] = len(ask(prometheus, query, job="fleet", **one))
        self.assertEqual({where: n for where, n in counts.items() if n > SERIES_MAX}, {})
        # It is no proof if nothing was drawn.
        self.assertGreaterEqual(sum(n == SERIES_MAX for n in counts.values()), 5)
