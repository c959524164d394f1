"""What scans cost, counted on the server's side, and that they change nothing where they read."""

import contextlib
import json
import os
import re
import secrets
import subprocess
import tempfile
import unittest
from concurrent import futures
from pathlib import Path

import checkout
import exporter
import restic_places
import restic_repo
import servers
from restic_places import KEYS, Bucket, Folder, Restic

LOCKS = 3
WARM_SCANS = 10
MANY_LOCKS = 2_500

# System calls that only look; what else names the repository is a change, or an attempt at one.
LOOKING = {
    "access",
    "close",
    "faccessat",
    "faccessat2",
    "fstat",
    "getdents64",
    "lseek",
    "lstat",
    "newfstatat",
    "openat",
    "pread64",
    "read",
    "readlink",
    "readlinkat",
    "stat",
    "statfs",
    "statx",
}
TALKING = {"execve", "recvfrom", "sendmsg", "sendto", "write", "writev"}
WRITING_FLAGS = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
LOCKING = re.compile(r"^flock\(|F_(OFD_)?(SETLKW?|GETLK)\b|F_SETLEASE")
SIGNALLING = {"kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo"}


class Reading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        restic = Restic(os.environ["RESTIC_018"])
        cls.empty = restic_places.make_template(restic, cls.folder)
        # Locks that stay as they are: of backups that were killed.
        cls.local = Folder(cls.folder / "locked")
        cls.local.fill(cls.empty)
        for _ in range(LOCKS):
            with restic_places.holding(restic, cls.local, "shared", hostname="web03") as holder:
                holder.kill()

    def bucket(self, template: Path) -> Bucket:
        bucket = Bucket("some/where")
        bucket.fill(template)
        self.filled = len(self.log(bucket))
        return bucket

    def log(self, bucket: Bucket) -> list[str]:
        lines = Path(os.environ["S3_LOG"]).read_text().splitlines()
        return bucket.requests(lines)

    def asked(self, bucket: Bucket) -> list[str]:
        """The requests since the bucket was filled or since the last call."""
        lines = self.log(bucket)[self.filled :]
        self.filled += len(lines)
        return [bucket.short(line) for line in lines]

    def exporter(self, scan: dict[str, str] | None = None, **watched: Bucket) -> exporter.Exporter:
        return exporter.Exporter(
            Path(self.enterContext(tempfile.TemporaryDirectory())),
            {
                "scan": {"interval": "1s"} | (scan or {}),
                "targets": [
                    {
                        "name": name,
                        "restic": {"repository": bucket.location, "env": bucket.environment},
                    }
                    for name, bucket in watched.items()
                ],
            },
        )


class Requests(Reading):
    def test_a_cold_scan_with_a_password(self):
        bucket = self.bucket(self.local.path)
        _, target = exporter.check(bucket.location, bucket.environment)
        self.assertEqual(target["lock_count"], LOCKS)
        cold = ["LIST keys/", "GET config", "GET keys/ID", "LIST locks/"]
        self.assertEqual(sorted(self.asked(bucket)), sorted(cold + LOCKS * ["GET locks/ID"]))

    def test_a_cold_sealed_scan(self):
        bucket = self.bucket(self.local.path)
        _, target = exporter.check(bucket.location, KEYS)
        self.assertTrue(target["sealed"])
        self.assertEqual(target["lock_count"], LOCKS)
        self.assertEqual(sorted(self.asked(bucket)), ["HEAD config", "LIST keys/", "LIST locks/"])

    def test_an_empty_listing_is_believed_beside_a_config(self):
        bucket = self.bucket(self.empty)
        _, target = exporter.check(bucket.location, bucket.environment)
        self.assertEqual(target["state"], "free")
        cold = ["LIST keys/", "GET config", "GET keys/ID", "LIST locks/", "HEAD config"]
        self.assertEqual(sorted(self.asked(bucket)), sorted(cold))

    def warm(self, bucket: Bucket, round_of_requests: list[str]) -> list[str]:
        """Lets an exporter scan on, and gives what it asked for after all was known."""
        with self.exporter(watched=bucket) as running:
            servers.wait_for(
                "enough scans",
                lambda: running.samples("watched").one("lock_scans_total") > WARM_SCANS + 2,
            )
        asked = self.asked(bucket)
        # It was ended at any moment; a scan that it did not finish does not count.
        while asked[-1] != round_of_requests[-1]:
            asked.pop()
        wanted = WARM_SCANS * len(round_of_requests)
        self.assertEqual(asked[-wanted:], WARM_SCANS * round_of_requests, asked)
        # What was asked for once was not asked for again.
        gets = [line for line in asked if line.startswith("GET")]
        self.assertEqual(gets.count("GET keys/ID"), 1)
        self.assertEqual(gets.count("GET config"), 1)
        return asked

    def test_ten_warm_scans_are_ten_listings(self):
        bucket = self.bucket(self.local.path)
        asked = self.warm(bucket, ["LIST locks/"])
        self.assertEqual(asked.count("GET locks/ID"), LOCKS)
        print("\nten warm scans in the server's log:")
        print("\n".join(self.log(bucket)[-WARM_SCANS:]))

    def test_ten_warm_scans_without_a_lock(self):
        self.warm(self.bucket(self.empty), ["LIST locks/", "HEAD config"])

    def test_2500_locks_are_three_listings(self):
        bucket = self.bucket(self.empty)
        with futures.ThreadPoolExecutor() as pool:
            for _ in range(MANY_LOCKS):
                pool.submit(bucket.put, f"locks/{secrets.token_hex(32)}", b"x" * 150)
        self.asked(bucket)
        _, target = exporter.check(bucket.location, KEYS)
        self.assertEqual(target["lock_count"], MANY_LOCKS)
        self.assertEqual(
            sorted(self.asked(bucket)), ["HEAD config", "LIST keys/", *(3 * ["LIST locks/"])]
        )

    def test_a_repository_without_locks_is_listed_less_often_until_it_has_one(self):
        buckets = {"locked": self.bucket(self.local.path), "free": self.bucket(self.empty)}
        (name,) = restic_repo.lock_files(self.local.path)[:1]

        def listed() -> dict[str, int]:
            return {
                name: sum("list-type=2" in line and "/locks/" in line for line in self.log(bucket))
                for name, bucket in buckets.items()
            }

        def wait_for_listings(least: int) -> dict[str, int]:
            return servers.wait_for(
                f"{least} listings", lambda: (now := listed())["locked"] >= least and now
            )

        with self.exporter({"idle_interval": "5s"}, **buckets) as running:
            before = wait_for_listings(25)
            # The first ones are close together; then it is a fifth.
            self.assertLessEqual(before["free"], 10)
            buckets["free"].put(f"locks/{name.name}", name.read_bytes())
            servers.wait_for(
                "the lock", lambda: running.samples("free").sum("lock_target_locks") == 1
            )
            seen = listed()
            after = wait_for_listings(seen["locked"] + 10)
        self.assertGreaterEqual(after["free"] - seen["free"], 6)
        print(f"\nlistings of {before['locked']} s: {before}; with a lock in both: {seen} {after}")

    def test_nothing_but_reading_requests_is_sent(self):
        bucket = self.bucket(self.local.path)
        with self.exporter(watched=bucket) as running:
            servers.wait_for(
                "some scans", lambda: running.samples("watched").one("lock_scans_total") >= 3
            )
        verbs = {line.split(" ")[0] for line in self.log(bucket)[self.filled :]}
        self.assertLessEqual(verbs, {"GET", "HEAD"})


def tracer(trace: Path) -> tuple[str, ...]:
    """Words before a command whose system calls are to be written down, with paths for numbers."""
    return (checkout.program("strace"), "-f", "-y", "-qq", "-s", "300", "-o", str(trace))


def traced(trace: Path) -> list[str]:
    """`call(…) = …`, and the second halves of calls that were interrupted by others."""
    return [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]


def changes(calls: list[str], root: Path) -> list[str]:
    """The calls that change a repository, or might."""
    found = []
    for call in calls:
        name = call.split("(", 1)[0]
        if str(root) not in call or name.startswith("<... "):
            continue
        if name in TALKING:
            # What is written elsewhere may name the repository: a log, a page.
            looks = f"<{root}" not in call
        elif name == "fcntl":
            looks = bool(re.search(r"F_(GETFD|SETFD|GETFL)\b", call))
        else:
            looks = name in LOOKING and not WRITING_FLAGS.search(call)
        if not looks:
            found.append(call)
    return found


class Writing(Reading):
    """A traced exporter over a local repository."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = cls.local.path
        before = cls.times(root)
        trace = cls.folder / "trace"
        config = {
            "scan": {"interval": "1s"},
            "targets": [
                {
                    "name": "watched",
                    "restic": {"repository": str(root), "env": cls.local.environment},
                }
            ],
        }
        with exporter.Exporter(cls.folder, config, before=tracer(trace)) as running:
            servers.wait_for(
                "ten scans",
                lambda: running.samples("watched").one("lock_scans_total") >= WARM_SCANS,
            )
            assert running.samples("watched").sum("lock_target_locks") == LOCKS
        cls.changed = {
            name: (at, before.get(name))
            for name, at in cls.times(root).items()
            if at != before.get(name)
        } | {name: None for name in before.keys() - cls.times(root).keys()}
        cls.calls = traced(trace)

    @staticmethod
    def times(root: Path) -> dict[str, tuple[int, int]]:
        """When each folder and file was changed, by content and by attributes."""
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
            for path in [root, *root.rglob("*")]
        }

    def test_no_time_of_the_repository_changes(self):
        self.assertEqual(self.changed, {})

    def test_no_system_call_changes_the_repository(self):
        # The trace is one of scans: each lists the folder.
        listings = [call for call in self.calls if call.startswith("getdents64")]
        about = [call for call in listings if f"<{self.local.path}/locks>" in call]
        self.assertGreaterEqual(len(about), WARM_SCANS)
        self.assertEqual(changes(self.calls, self.local.path), [])

    def test_what_restic_does_would_be_seen(self):
        restic = Restic(os.environ["RESTIC_018"])
        trace = self.folder / "restic-trace"
        subprocess.run(
            [*tracer(trace), *restic.command(self.local, "snapshots")],
            env=os.environ | self.local.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        calls = [call.split("(", 1)[0] for call in changes(traced(trace), self.local.path)]
        # It makes a lock and removes it.
        self.assertIn("openat", calls)
        self.assertIn("unlinkat", calls)

    def test_no_lock_is_taken_and_none_is_probed(self):
        self.assertEqual([call for call in self.calls if LOCKING.search(call)], [])

    def test_no_signal_is_sent(self):
        self.assertEqual(
            [call for call in self.calls if call.split("(", 1)[0] in SIGNALLING], []
        )


class Versions(Reading):
    def test_deleted_versions_of_locks_are_no_locks(self):
        """A listing of versions would show every lock that there ever was."""
        bucket = self.bucket(self.empty)
        bucket.client.put_bucket_versioning(
            Bucket=bucket.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        for _ in range(50):
            name = secrets.token_hex(32)
            bucket.put(f"locks/{name}", b"x" * 150)
            bucket.client.delete_object(Bucket=bucket.bucket, Key=f"{bucket.prefix}/locks/{name}")
        for path in (self.local.path / "locks").iterdir():
            bucket.put(f"locks/{path.name}", path.read_bytes())
        _, target = exporter.check(bucket.location, bucket.environment)
        self.assertEqual(target["lock_count"], LOCKS)
        self.assertEqual({lock["kind"] for lock in target["locks"]}, {"readable"})


class LockedDown(Reading):
    def test_it_runs_without_home_cache_or_a_writable_folder_as_nobody(self):
        """As a hardened unit or container runs it; what it needs is to read the repository."""
        # The folder of the tests is for their user only.
        for path in (self.folder, self.local.path, *self.local.path.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o444)
        program = checkout.exporter()
        script = f"""
            mount -o remount,bind,ro /
            ! touch {self.folder}/x 2>/dev/null || exit 99
            cd / && exec setpriv --reuid=65532 --regid=65532 --clear-groups \\
                env -i RESTIC_PASSWORD={restic_places.PASSWORD} \\
                {program} check -r {self.local.path} --output=json
        """
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True
        )
        self.assertNotEqual(done.returncode, 99, "the root file system could be written to")
        (target,) = json.loads(done.stdout)["targets"]
        self.assertIsNone(target["error"])
        self.assertEqual(target["lock_count"], LOCKS)
        self.assertEqual({lock["mode"] for lock in target["locks"]}, {"shared"})
