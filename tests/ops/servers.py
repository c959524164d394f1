"""Prometheus, Alertmanager and small HTTP servers on free ports of 127.0.0.1, for one test each."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import yaml

import checkout

Found = TypeVar("Found")

# Long enough for a machine that compiles at the same time; nothing waits this long in a good run.
DEADLINE_SECONDS = 90.0

S3_SERVER = Path(__file__).with_name("s3_server.py")


def wait_for(
    what: str, look: Callable[[], Found | None], seconds: float = DEADLINE_SECONDS
) -> Found:
    """Asks again and again until there is an answer; after the deadline it fails."""
    ends = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < ends:
        try:
            found = look()
            if found:
                return found
            last = None
        except (OSError, ValueError, LookupError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(
        f"after {seconds:.0f} s still waiting for {what}" + (f": {last}" if last else "")
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port: int, what: str) -> None:
    """Until something listens there."""
    wait_for(what, lambda: socket.create_connection(("127.0.0.1", port)).close() is None)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def get_json(url: str):
    return json.loads(get(url))


class Server:
    """A program that listens on a port of its own, ended with the `with` block."""

    ready_path = "/-/ready"
    # What its environment has beside that of the tests.
    environment: dict[str, str] = {}

    def __init__(self, name: str, folder: Path, command: Callable[[int], list[str]]):
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.command = command
        self.process: subprocess.Popen | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        # Another program may take the free port first: then choose again.
        for attempt in range(3):
            self.port = free_port()
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command(self.port),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=os.environ | self.environment,
                )
            try:
                wait_for(f"{self.name} to be ready", self.is_ready)
                return self
            except AssertionError as error:
                self.__exit__()
                text = self.log.read_text(errors="replace")
                if "address already in use" not in text.lower() or attempt == 2:
                    raise AssertionError(f"{error}\n{self.tail()}") from None
        raise AssertionError("unreachable")

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def is_ready(self) -> bool:
        if self.process and self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}")
        get(self.url + self.ready_path)
        return True

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


class Prometheus(Server):
    def __init__(self, folder: Path, config: dict):
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        program = checkout.program("prometheus")
        super().__init__(
            "prometheus",
            folder,
            lambda port: [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'prometheus-data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
        )

    def query(self, expr: str) -> list[dict]:
        """The samples of an instant query; a query that Prometheus refuses fails the test."""
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
        try:
            answer = get_json(url)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.read().decode()}\n{expr}") from None
        assert answer["status"] == "success", answer
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [{"metric": {}, "value": result}]
        return result

    def alerts(self) -> list[dict]:
        return get_json(f"{self.url}/api/v1/alerts")["data"]["alerts"]


class Alertmanager(Server):
    def __init__(self, folder: Path, config: dict):
        file = folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(config))
        program = checkout.program("prometheus-alertmanager")
        super().__init__(
            "alertmanager",
            folder,
            lambda port: [
                program,
                f"--config.file={file}",
                f"--storage.path={folder / 'alertmanager-data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
        )


    def post(self, alerts: list[dict]) -> None:
        """Tells it of alerts, as Prometheus does."""
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts",
            json.dumps(alerts).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def hidden(self, count: int) -> set[tuple[str, str]] | None:
        """Name and namespace of the alerts that others hide, once it has judged that many."""
        alerts = get_json(f"{self.url}/api/v2/alerts")
        if len(alerts) != count or any(a["status"]["state"] == "unprocessed" for a in alerts):
            return None
        return {
            (alert["labels"]["alertname"], alert["labels"]["namespace"])
            for alert in alerts
            if alert["status"]["inhibitedBy"]
        }


class S3:
    """The S3 server of `s3_server.py`, named in the environment as tests/run names it."""

    def __init__(self, folder: Path):
        self.address = folder / "s3.address"
        self.log = folder / "s3.log"
        self.errors = folder / "s3.errors"

    def __enter__(self):
        with self.log.open("wb") as log, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(S3_SERVER), str(self.address)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
            )
        wait_for("the S3 server", self.address.exists)
        os.environ["S3_ENDPOINT"] = self.address.read_text().strip()
        os.environ["S3_LOG"] = str(self.log)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class HttpServer:
    """A small HTTP server in this process: `answer(method, path, body)` gives the body to send."""

    def __init__(self, answer: Callable[[str, str, bytes], str]):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = answer(self.command, self.path, self.rfile.read(length)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
