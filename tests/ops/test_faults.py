"""Faults of storage, network, disk, clock and memory under a running exporter.

What is told meanwhile is the truth or an error, the neighbours of what fails are scanned as ever,
and when the fault is over the next scan is a good one.
"""

import contextlib
import email.utils
import functools
import hashlib
import json
import os
import resource
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import exporter
import restic_places
import restic_repo
import servers
from fault_backend import Backend, Request
from fault_oracle import Oracle, Watch
from restic_places import Folder, Restic
from together import Together

INTERVAL_SECONDS = 1
MAKING = threading.Lock()
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


def run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


def load_tests(loader, tests: unittest.TestSuite, pattern) -> unittest.TestSuite:
    return Together(tests)


@functools.cache
def made() -> tempfile.TemporaryDirectory:
    """Has a repository with the lock of a backup that was killed on another host."""
    restic_places.require_namespaces()
    folder = tempfile.TemporaryDirectory()
    restic = Restic(os.environ["RESTIC_018"])
    place = Folder(restic_places.make_template(restic, Path(folder.name)))
    with restic_places.holding(restic, place, "shared", hostname="web03") as holder:
        holder.kill()
    place.path.rename(Path(folder.name) / "repository")
    return folder


def template() -> Path:
    with MAKING:
        return Path(made().name) / "repository"


class Case(unittest.TestCase):
    """Copies of one repository with one lock."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("ill", "well"):
            Folder(self.folder / name).fill(template())
        self.place = self.folder / "ill"

    @contextlib.contextmanager
    def watching(
        self,
        location: str = "",
        answers: bool = True,
        environment: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
        **restic: object,
    ) -> Iterator[Watch]:
        """An exporter that has seen both locks, read by the oracle until the end of the block."""
        places = {"ill": location or str(self.place), "well": str(self.folder / "well")}
        targets = [
            {"name": name, "restic": {"repository": place} | (restic if name == "ill" else {})}
            for name, place in places.items()
        ]
        targets[0]["timeout"] = "1s"
        config = {"scan": {"interval": f"{INTERVAL_SECONDS}s"}, "targets": targets}
        environment = {"RESTIC_PASSWORD": restic_places.PASSWORD} | (environment or {})
        with exporter.Exporter(self.folder, config, environment, before) as running:
            watch = Watch(running)
            watch.sees_all()
            with Oracle(running, list(places), answers):
                yield watch


class Storage(Case):
    def backend(self) -> Backend:
        return self.stack.enter_context(Backend(self.place))

    def fails_and_recovers(
        self, fault: Callable[[Request, bytes], None], *reasons: str
    ) -> str:
        """Gives the words of the failure."""
        backend = self.backend()
        with self.watching(backend.location()) as watch:
            backend.fault = fault
            watch.fails(*reasons)
            watch.others_go_on()
            why = watch.why()
            backend.fault = None
            watch.recovers()
        return why

    def test_a_server_that_is_killed_in_the_middle_of_a_listing(self):
        backend = self.backend()

        def die(request: Request, body: bytes) -> None:
            request.send(body[: len(body) // 2], promised=len(body))
            # From another thread it would wait for this one.
            backend.listener.socket.close()

        with self.watching(backend.location()) as watch:
            backend.fault = die
            watch.fails("network", "protocol")
            watch.others_go_on()
            backend.stop()
            watch.fails("network")
            backend.fault = None
            backend.start()
            watch.recovers()

    def test_answers_that_are_cut_short(self):
        def cut(request: Request, body: bytes) -> None:
            request.send(body[: len(body) // 2], promised=len(body))

        self.fails_and_recovers(cut, "network", "protocol")

    def test_a_listing_that_is_whole_but_empty_of_everything(self):
        """What a proxy or a server says whose disk is not mounted."""

        def nothing(request: Request, body: bytes) -> None:
            if request.path.endswith("/"):
                request.send(b"[]")
            else:
                request.refuse(404)

        self.fails_and_recovers(nothing, "not_found", "damaged")

    def test_a_server_that_asks_for_patience(self):
        for status, wish in ((429, "1"), (503, "1"), (503, "date")):
            with self.subTest(status, wish=wish):

                def later(request: Request, body: bytes) -> None:
                    date = email.utils.formatdate(time.time() + 1, usegmt=True)
                    request.refuse(status, Retry_After=date if wish == "date" else wish)

                self.assertIn("try again after", self.fails_and_recovers(later, "throttled"))

    def test_a_server_that_is_stopped_and_goes_on(self):
        place = self.folder / "served"
        place.mkdir()
        shutil.move(self.place, place / "repository")
        port = servers.free_port()
        server = subprocess.Popen(
            [os.environ["REST_SERVER"], "--no-auth", "--path", place]
            + ["--listen", f"127.0.0.1:{port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.stack.callback(server.wait)
        self.stack.callback(server.kill)
        listing = f"http://127.0.0.1:{port}/repository/locks/"
        servers.wait_for("rest-server", lambda: servers.get(listing))
        with self.watching(f"rest:http://127.0.0.1:{port}/repository/") as watch:
            server.send_signal(signal.SIGSTOP)
            watch.fails("timeout")
            watch.others_go_on()
            server.send_signal(signal.SIGCONT)
            watch.recovers()

    def test_a_name_that_nobody_knows_for_a_while(self):
        backend = self.backend()
        hosts, resolver = self.folder / "hosts", self.folder / "resolv.conf"
        known = "127.0.0.1 localhost storage.fault.test\n"
        hosts.write_text(known)
        # Nobody answers there.
        resolver.write_text("nameserver 127.0.0.1\n")
        script = f"mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf"
        before = ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")
        with self.watching(backend.location("storage.fault.test"), before=before) as watch:
            hosts.write_text("127.0.0.1 localhost\n")
            watch.fails("network")
            watch.others_go_on()
            self.assertIn("storage.fault.test", watch.why())
            hosts.write_text(known)
            watch.recovers()

    def test_a_certificate_that_expired_and_is_renewed(self):
        authority = certificates.Authority(self.folder / "ca.pem")
        backend = Backend(self.place)
        backend.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        good, expired = (
            authority.issue(self.folder / f"{days}.pem", days_left=days) for days in (30, -1)
        )
        backend.tls.load_cert_chain(good)
        # Each connection is to see the certificate.
        backend.tls.num_tickets = 0
        backend.tls.options |= ssl.OP_NO_TICKET
        self.stack.enter_context(backend)
        with self.watching(backend.location(), cacert=str(self.folder / "ca.pem")) as watch:
            backend.tls.load_cert_chain(expired)
            watch.fails("tls")
            watch.others_go_on()
            self.assertIn("expired", watch.why())
            backend.tls.load_cert_chain(good)
            watch.recovers()


class Memory(Case):
    """Key files that ask for memory that is not there."""

    def key_file(self) -> Path:
        (path,) = (self.place / "keys").iterdir()
        return path

    def watch_anew(self, watch: Watch) -> None:
        """Lets the exporter open the repository again; the locks that it saw are still known."""
        config = watch.running.folder / "lock_exporter.yml"
        config.write_text(config.read_text().replace("timeout: 1s", "timeout: 5s"))
        watch.running.process.send_signal(signal.SIGHUP)

    def test_a_key_that_wants_more_memory_than_all_may_have(self):
        good = self.key_file()
        kept = good.read_bytes()
        text = json.dumps(json.loads(kept) | {"N": 1 << 20}).encode()
        with self.watching() as watch:
            good.unlink()
            huge = good.with_name(hashlib.sha256(text).hexdigest())
            huge.write_bytes(text)
            self.watch_anew(watch)
            watch.fails("unsupported")
            watch.others_go_on()
            self.assertIn("memory", watch.why())
            huge.unlink()
            good.write_bytes(kept)
            watch.recovers()

    def test_a_key_for_which_the_system_has_no_memory_now(self):
        restic = Restic(os.environ["RESTIC_018"])
        master = restic.run(Folder(self.place), "cat", "masterkey", "-q")
        with self.watching() as watch:
            pid = watch.running.process.pid
            before = resource.prlimit(pid, resource.RLIMIT_AS)
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            # What is about to be asked for is 128 MiB.
            limit = pages * resource.getpagesize() + (48 << 20)
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, before[1]))
            restic_repo.set_key_cost(self.place, restic_places.PASSWORD, master, 1 << 17)
            self.watch_anew(watch)
            watch.fails("other")
            watch.others_go_on()
            self.assertIn("memory", watch.why())
            resource.prlimit(pid, resource.RLIMIT_AS, before)
            watch.recovers()


class Machine(Case):
    """The exporter itself is stopped, or its machine lacks something."""

    def test_an_exporter_that_is_stopped_and_goes_on(self):
        with self.watching(answers=False) as watch:
            for _ in range(2):
                watch.running.process.send_signal(signal.SIGSTOP)
                # Several intervals pass for everybody else.
                time.sleep(2 * INTERVAL_SECONDS)
                watch.running.process.send_signal(signal.SIGCONT)
                watch.others_go_on()
            watch.recovers()

    def test_a_clock_that_is_set_forward_and_back(self):
        file = self.folder / "clock"

        def set_clock(by: str) -> None:
            part = file.with_suffix(".part")
            part.write_text(by + "\n")
            part.rename(file)

        set_clock("+0")
        environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        with self.watching(environment=environment) as watch:
            for by in ("+25m", "-3h", "+0"):
                set_clock(by)
                watch.others_go_on()
            watch.recovers()

    def test_no_descriptors_left(self):
        with self.watching(answers=False) as watch:
            pid = watch.running.process.pid
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(used) + 1, before[1]))
            # It may be too few to answer at all; the log tells that it was felt.
            servers.wait_for("a complaint", lambda: "Too many open files" in watch.log())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            watch.recovers()


class StateFolder(Case):
    """Where the exporter remembers is on a disk that fails; nothing else depends on it."""

    @contextlib.contextmanager
    def remembering(self, state: Path) -> Iterator[tuple[Watch, Path]]:
        environment = {"LOCK_EXPORTER_STATE_DIR": str(state)}
        with self.watching(environment=environment) as watch:
            yield watch, state / "memory.json"

    @contextlib.contextmanager
    def mounted(self, *words: object) -> Iterator[Path]:
        place = self.folder / "mounted"
        place.mkdir()
        run("mount", *words, place)
        try:
            yield place
        finally:
            run("umount", place)

    @contextlib.contextmanager
    def disk(self) -> Iterator[Path]:
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(128 << 20)
        run("mkfs.btrfs", "-q", image)
        with self.mounted("-o", "loop", image) as place:
            state = place / "state"
            run("btrfs", "-q", "subvolume", "create", state)
            yield state

    @contextlib.contextmanager
    def frozen(self, disk: Path) -> Iterator[None]:
        run("fsfreeze", "--freeze", disk)
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", disk)

    def complains(self, watch: Watch, word: str) -> None:
        line = "what is remembered was not written down"
        servers.wait_for(
            f"a complaint of {word}",
            lambda: any(line in said and word in said for said in watch.log().splitlines()),
        )
        watch.others_go_on()

    def is_written(self, memory: Path) -> None:
        servers.wait_for("the memory", memory.exists)
        json.loads(memory.read_text())

    def test_a_disk_that_is_full(self) -> None:
        with (
            self.mounted("-t", "tmpfs", "-o", "size=64k", "none") as disk,
            self.remembering(disk) as (watch, memory),
        ):
            filler = disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as file:
                file.write(bytes(1 << 20))
            self.complains(watch, "No space left")
            filler.unlink()
            self.is_written(memory)

    def test_a_disk_that_is_read_only_for_a_while(self) -> None:
        def set_to(value: str) -> None:
            run("btrfs", "-q", "property", "set", "-ts", state, "ro", value)

        with self.disk() as state, self.remembering(state) as (watch, memory):
            set_to("true")
            self.complains(watch, "Read-only")
            set_to("false")
            self.is_written(memory)

    def test_a_disk_that_hangs(self) -> None:
        with self.disk() as state, self.remembering(state) as (watch, memory):
            with self.frozen(state.parent):
                tasks = Path(f"/proc/{watch.running.process.pid}/task")
                servers.wait_for(
                    "a writer that hangs",
                    lambda: any(
                        "State:\tD" in (task / "status").read_text() for task in tasks.iterdir()
                    ),
                )
                watch.others_go_on()
            self.is_written(memory)
