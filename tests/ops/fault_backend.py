"""A storage server in this process that fails as it is told: restic's REST protocol over a folder.

It only reads, and closes each connection after one answer, so that nothing that was reached before
a fault hides it.
"""

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPE = "application/vnd.x.restic.rest.v2"


class Request(BaseHTTPRequestHandler):
    """One request; a fault may use all of it."""

    server: "Listener"

    def do_GET(self):
        self.server.backend.answer(self)

    do_HEAD = do_GET

    def send(self, body: bytes, promised: int | None = None) -> None:
        """Sends a good answer, which may promise more than there is."""
        self.send_response(200)
        self.send_header("Content-Type", TYPE)
        self.send_header("Content-Length", str(len(body) if promised is None else promised))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def refuse(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        pass


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    backend: "Backend"

    def handle_error(self, request, client_address):
        """A client that gives up is no news."""


class Backend:
    """The server. `fault` is called with each request and its body, in place of an answer."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.fault: Callable[[Request, bytes], None] | None = None
        self.tls: ssl.SSLContext | None = None
        self.port = 0
        self.listener: Listener | None = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """Listens, from the second time on where it did before."""
        self.listener = Listener(("127.0.0.1", self.port), Request)
        self.listener.backend = self
        self.port = self.listener.server_port
        if self.tls:
            # The handshake belongs to the thread of the connection.
            self.listener.socket = self.tls.wrap_socket(
                self.listener.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self.listener:
            self.listener.shutdown()
            self.listener.server_close()
            self.listener = None

    def location(self, host: str = "127.0.0.1") -> str:
        scheme = "https" if self.tls else "http"
        return f"rest:{scheme}://{host}:{self.port}/"

    def answer(self, request: Request) -> None:
        path = self.folder / request.path.strip("/")
        if not path.resolve().is_relative_to(self.folder.resolve()) or not path.exists():
            request.refuse(404)
            return
        body = path.read_bytes() if path.is_file() else self.listing(path)
        if self.fault:
            self.fault(request, body)
        else:
            request.send(body)

    def listing(self, folder: Path) -> bytes:
        files = [path for path in folder.iterdir() if path.is_file()]
        return json.dumps(
            [{"name": path.name, "size": path.stat().st_size} for path in files]
        ).encode()
