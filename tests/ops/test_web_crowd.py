"""Whoever disturbs the web server, by number or by manners, and an honest scraper beside it."""

import contextlib
import functools
import re
import resource
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request

import servers
import web_server
from web_case import TLS, Case
from web_server import Web

IDLE_CONNECTIONS = 10_000


def at_both_doors(test):
    """Runs a test on a plain exporter, and on one with TLS."""

    @functools.wraps(test)
    def run(self):
        for name, text in (("plain", ""), ("tls", TLS)):
            with self.subTest(name), contextlib.ExitStack() as stack:
                web_server.replace(self.file, text.encode())
                web = stack.enter_context(Web(self.folder, web=self.file))
                test(self, web, self.context if text else None, stack)

    return run


class Crowd(Case):
    """Whoever behaves badly, and an honest scraper beside it whose every scrape is answered."""

    @classmethod
    def setUpClass(cls):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        needed = IDLE_CONNECTIONS + 1000
        if most < needed:
            raise AssertionError(f"only {most} files may be open, {needed} are needed: ulimit -Hn")

    def setUp(self):
        super().setUp()
        self.authority()
        self.context = ssl.create_default_context(cafile=self.folder / "tests.ca.pem")

    @contextlib.contextmanager
    def scraper(self, web: Web, context):
        """Scrapes again and again, each time on a new connection, until the end."""
        ended, seen = threading.Event(), []

        def scrape():
            while not ended.is_set() or len(seen) < 6:
                try:
                    with urllib.request.urlopen(
                        web.url + "/metrics", timeout=60, context=context
                    ) as answer:
                        seen.append(answer.read().startswith(b"# HELP"))
                except (OSError, ValueError) as error:
                    seen.append(error)

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self.assertEqual([one for one in seen if one is not True], [])

    def crowd(self, stack, web: Web, count: int, sends: bytes = b"", context=None) -> list:
        crowd = []
        for _ in range(count):
            # Whoever is too many may be turned away at any moment.
            with contextlib.suppress(OSError):
                connection = stack.enter_context(web.connect(context))
                crowd.append(connection)
                connection.sendall(sends)
        return crowd

    @at_both_doors
    def test_ten_thousand_idle_connections(self, web, context, stack):
        with self.scraper(web, context):
            # With TLS these are handshakes that never begin.
            self.crowd(stack, web, IDLE_CONNECTIONS)

    def test_handshakes_that_stop_half_way(self):
        hello = bytes.fromhex("16030100c8010000c40303") + bytes(32)
        web_server.replace(self.file, TLS.encode())
        web = self.stack.enter_context(Web(self.folder, web=self.file))
        with self.scraper(web, self.context):
            crowd = self.crowd(self.stack, web, 1500, hello)
            crowd[-1].settimeout(servers.DEADLINE_SECONDS)
            # The limit ends also the last one, which nobody has pushed out.
            self.assertEqual(self.rest(crowd[-1]), b"")

    @at_both_doors
    def test_heads_that_come_byte_by_byte(self, web, context, stack):
        with self.scraper(web, context):
            crowd = self.crowd(stack, web, 550, b"GET /metrics HTTP/1.1\r\nX-Slow: ", context)
            last = crowd[-1]
            last.settimeout(0.05)
            ended = servers.wait_for("the end of a slow head", lambda: self.feed(last))
            self.assertTrue(ended)

    def feed(self, connection) -> bool:
        """Sends one more byte; whether the other side has closed."""
        try:
            connection.sendall(b"a")
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def rest(self, connection) -> bytes:
        found = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := connection.recv(65536):
                found += piece
        return found

    @at_both_doors
    def test_answers_that_nobody_takes(self, web, context, stack):
        # Of the page, since there is a limit of scrapes that this is not about.
        ask = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        with self.scraper(web, context):
            self.crowd(stack, web, 550, ask, context)

    @at_both_doors
    def test_many_requests_at_once_are_answered_in_their_order(self, web, context, stack):
        one = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
        other = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with self.scraper(web, context):
            (connection,) = self.crowd(stack, web, 1, (one + other) * 300 + last, context)
            found = re.findall(rb"HTTP/1\.1 (\d+)", self.rest(connection))
            self.assertEqual(found, [b"200", b"404"] * 300 + [b"200"])

    @at_both_doors
    def test_a_head_of_a_megabyte_is_refused(self, web, context, stack):
        head = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
        for more in (b"X-Much: " + b"a" * 1_000_000, b"X-Many: 1\r\n" * 90_000):
            with self.scraper(web, context):
                (connection,) = self.crowd(stack, web, 1, head + more + b"\r\n\r\n", context)
                answer = self.rest(connection)
                # A client that is still sending may see a reset instead of the answer.
                if answer:
                    self.assertTrue(answer.startswith(b"HTTP/1.1 431"), answer[:80])
        with self.subTest("just too large"):
            (connection,) = self.crowd(
                stack, web, 1, head + b"X: " + b"a" * 140_000 + b"\r\n\r\n", context
            )
            self.assertTrue(self.rest(connection).startswith(b"HTTP/1.1 431"))

    @at_both_doors
    def test_a_kept_connection_outlives_a_pause_between_scrapes(self, web, context, stack):
        ask = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
        (kept,) = self.crowd(stack, web, 1, ask, context)
        self.assertTrue(kept.recv(65536).startswith(b"HTTP/1.1 200"))
        # Longer than a head may take: another connection's end tells that it has passed.
        (silent,) = self.crowd(stack, web, 1, b"", context)
        self.assertEqual(self.rest(silent), b"")
        kept.sendall(ask)
        self.assertTrue(kept.recv(65536).startswith(b"HTTP/1.1 200"))
