"""The exporter as a web server: TLS, client certificates, passwords, and who cannot disturb whom.

A real Prometheus scrapes through everything that happens to a protected exporter in its life.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import servers
import web_server
from web_case import TLS, Case, tls
from web_server import SANS, Authority, Web, bcrypt_hash, curl

USER, PASSWORD = "prometheus", "pl4nted-web-password"


class Prometheus(Case):
    def test_it_scrapes_on_through_a_reload_and_a_new_certificate(self):
        authority = self.authority()
        users = f"basic_auth_users: {{{USER}: {bcrypt_hash(PASSWORD)}}}\n"
        config = self.folder / "lock_exporter.yml"
        target = "targets: [{name: NAME, restic: {repository: /nonexistent}}]\n"
        config.write_text(target.replace("NAME", "one"))
        web = self.web(TLS + users, f"--config.file={config}")
        job = {
            "job_name": "lock-exporter",
            "scheme": "https",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "tls_config": {"ca_file": str(authority.file)},
            "basic_auth": {"username": USER, "password": PASSWORD},
            "static_configs": [{"targets": [f"127.0.0.1:{web.port}"]}],
        }
        prometheus = self.stack.enter_context(
            servers.Prometheus(self.folder, {"scrape_configs": [job]})
        )

        def scrapes(expression: str = "count_over_time(up[1h])") -> int:
            found = prometheus.query(expression)
            return int(found[0]["value"][1]) if found else 0

        def more_scrapes() -> None:
            before = scrapes()
            servers.wait_for("more scrapes", lambda: scrapes() >= before + 4)

        more_scrapes()
        config.write_text(target.replace("NAME", "two"))
        web.hang_up()
        servers.wait_for("the reload", lambda: prometheus.query('lock_target_info{target="two"}'))
        more_scrapes()
        renewed = authority.server()
        context = ssl.create_default_context(cafile=authority.file)

        def shown() -> int:
            with web.connect(context) as connection:
                der = connection.getpeercert(binary_form=True)
            pem = ssl.DER_cert_to_PEM_cert(der).encode()
            return web_server.x509.load_pem_x509_certificate(pem).serial_number

        self.assertNotEqual(renewed, self.serial)
        servers.wait_for("the new certificate", lambda: shown() == renewed)
        more_scrapes()
        self.assertEqual(scrapes("min_over_time(up[1h])"), 1)
        self.assertEqual(scrapes("sum_over_time(up[1h])"), scrapes())
        refused = 'sum(lock_exporter_http_requests_total{code=~"4..|5.."})'
        self.assertEqual(scrapes(refused), 0)


class Certificates(Case):
    def ask(self, web: Web, client: str | None, key: str | None = None) -> int:
        arguments = ["--cacert", str(self.folder / "tests.ca.pem")]
        if client:
            arguments += ["--cert", str(self.folder / client)]
            arguments += ["--key", str(self.folder / (key or client.replace(".pem", ".key")))]
        return curl(web.url + "/-/healthy", *arguments)[1]

    def test_only_a_verified_certificate_with_an_allowed_name_gets_in(self):
        authority = self.authority()
        for kind, (name, _) in SANS.items():
            authority.issue(kind, [name])
        authority.issue("another", [web_server.x509.DNSName("web01.example.org")])
        authority.issue("nameless", [])
        stranger = Authority(self.folder, "stranger")
        stranger.issue("forged", [SANS["dns"][0]])
        allowed = json.dumps([text for _, text in SANS.values()])
        web = self.web(
            tls(
                "client_auth_type: RequireAndVerifyClientCert",
                "client_ca_file: tests.ca.pem",
                f"client_allowed_sans: {allowed}}}\n",
            )
        )
        for client in SANS:
            with self.subTest(client):
                self.assertEqual(self.ask(web, f"{client}.pem"), 200)
        for client in ("another.pem", "nameless.pem", "forged.pem", None):
            with self.subTest(client):
                self.assertEqual(self.ask(web, client), 0)
        # What is no longer allowed does not get in with the next handshake.
        web_server.replace(self.file, self.file.read_bytes().replace(b"prom01", b"prom02"))
        self.assertEqual(self.ask(web, "dns.pem"), 0)
        self.assertEqual(self.ask(web, "uri.pem"), 200)

    def test_each_type_asks_what_it_says(self):
        authority = self.authority()
        authority.issue("known", [])
        stranger = Authority(self.folder, "stranger")
        stranger.issue("forged", [])
        authority.own_key()
        own = ("tests.ca.pem", "tests.ca.key")
        ca = "client_ca_file: tests.ca.pem"
        for word, more, none, forged, known in [
            ("NoClientCert", [], 200, 200, 200),
            ("RequestClientCert", [], 200, 200, 200),
            ("RequireAnyClientCert", [], 0, 200, 200),
            ("RequireClientCert", [], 0, 200, 200),
            ("VerifyClientCertIfGiven", [ca], 200, 0, 200),
            ("RequireAndVerifyClientCert", [ca], 0, 0, 200),
        ]:
            text = tls(f"client_auth_type: {word}", *more) + "}\n"
            web = self.web(text)
            with self.subTest(word):
                seen = (
                    self.ask(web, None),
                    self.ask(web, "forged.pem"),
                    self.ask(web, "known.pem"),
                    # Itself among the authorities, as `openssl req -x509` makes it.
                    self.ask(web, *own),
                )
                self.assertEqual(seen, (none, forged, known, 200))
            web.__exit__()

    def test_versions_and_protocols(self):
        self.authority()
        web = self.web(tls("max_version: TLS12}\n"))
        ca = ("--cacert", str(self.folder / "tests.ca.pem"))
        self.assertEqual(curl(web.url + "/-/healthy", "--http2", *ca), (0, 200))
        self.assertNotEqual(curl(web.url + "/-/healthy", "--tlsv1.3", *ca)[0], 0)
        # Plain HTTP to a TLS port is closed, not answered.
        self.assertEqual(curl(web.url.replace("https", "http"))[1], 0)


class Passwords(Case):
    def test_who_is_not_known_gets_401_and_a_broken_file_lets_nobody_in(self):
        good = f"basic_auth_users: {{{USER}: {bcrypt_hash(PASSWORD)}}}\n"
        web = self.web(good + "http_server_config: {headers: {X-Frame-Options: deny}}\n")

        def ask(path: str, *who: str) -> int:
            return curl(web.url + path, *(["--user", ":".join(who)] if who else []))[1]

        paths = ("/", "/metrics", "/-/healthy", "/-/ready", "/nowhere")
        for path in paths:
            with self.subTest(path):
                self.assertEqual(ask(path), 401)
                self.assertEqual(ask(path, USER, "wrong"), 401)
                self.assertEqual(ask(path, "nobody", PASSWORD), 401)
                wanted = 404 if path == "/nowhere" else 200
                self.assertEqual(ask(path, USER, PASSWORD), wanted)
        # Asked for by name, since scrapes that come together share one page.
        ask_for = web.url + "/metrics?name[]=lock_exporter_http_requests_total"
        shown = subprocess.run(
            ["curl", "-gs", "--user", f"{USER}:{PASSWORD}", ask_for],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for handler in ("/", "/metrics", "/-/healthy", "/-/ready", "other"):
            # Whose door was knocked at can be told although nobody came in.
            labels = f'code="401",handler="{handler}"'
            series = rf"^lock_exporter_http_requests_total{{{labels}}} [1-9]"
            self.assertRegex(shown, re.compile(series, re.M))
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(web.url)
        self.assertTrue(raised.exception.headers["WWW-Authenticate"].startswith("Basic "))
        self.assertEqual(raised.exception.headers["X-Frame-Options"], "deny")
        for path, wanted in (("/-/healthy", 200), ("/-/ready", 200), ("/metrics", 404), ("/", 404)):
            self.assertEqual(curl(web.probe_url + path)[1], wanted, path)
        self.file.write_text(f"basic_auth_users: {{{USER}: {PASSWORD}}}\n")
        servers.wait_for("500", lambda: ask("/metrics", USER, PASSWORD) == 500)
        for path in paths:
            self.assertEqual(ask(path, USER, PASSWORD), 500)
        self.assertEqual(web.said().count("web configuration broken"), 1)
        self.assertNotIn(PASSWORD, web.said())
        self.assertEqual(curl(web.probe_url + "/-/healthy")[1], 200)
        self.file.write_text(good)
        self.assertEqual(ask("/metrics", USER, PASSWORD), 200)
        self.file.write_text(good.replace(USER, "someone"))
        self.assertEqual(ask("/metrics", USER, PASSWORD), 401)

    def test_a_rate_limit_comes_before_the_password(self):
        users = f"basic_auth_users: {{{USER}: {bcrypt_hash(PASSWORD)}}}\n"
        web = self.web(users + "rate_limit: {interval: 1h, burst: 2}\n")
        codes = [curl(web.url + path)[1] for path in ("/metrics", "/-/healthy", "/", "/metrics")]
        self.assertEqual(codes, [401, 401, 429, 429])
        self.assertEqual(curl(web.probe_url + "/-/healthy")[1], 200)

    def test_health_can_be_asked_for_whatever_is_asked_of_others(self):
        authority = self.authority()
        users = f"basic_auth_users: {{{USER}: {bcrypt_hash(PASSWORD)}}}\n"
        for text in (TLS, users, TLS + users):
            with self.subTest(text):
                web = self.web(text)
                address = f"--web.listen-address=127.0.0.1:{web.port}"
                self.assertEqual(self.health(address, f"--web.config.file={self.file}"), 0)
                web.__exit__()
                self.assertEqual(self.health(address, f"--web.config.file={self.file}"), 1)
        any_ = tls("client_auth_type: RequireAnyClientCert}\n")
        web = self.web(any_)
        address = f"--web.listen-address=127.0.0.1:{web.port}"
        probe = f"--web.probe-listen-address=127.0.0.1:{web.probe_port}"
        self.assertEqual(self.health(address, f"--web.config.file={self.file}"), 1)
        self.assertEqual(self.health(address, f"--web.config.file={self.file}", probe), 0)
        self.assertTrue(authority.file.exists())

    def health(self, *flags: str) -> int:
        program = web_server.checkout.exporter()
        return subprocess.run([program, "healthcheck", *flags], capture_output=True).returncode

    def test_no_secret_is_shown_anywhere(self):
        self.authority()
        hashed = bcrypt_hash(PASSWORD)
        key = (self.folder / "server.key").read_text()
        inline = "tls_server_config:\n  cert_file: server.pem\n  key: |\n"
        inline += "".join(f"    {line}\n" for line in key.splitlines())
        text = inline + f"basic_auth_users: {{{USER}: {hashed}}}\n"
        web = self.web(text, "--log.level=debug")
        who = ["--user", f"{USER}:{PASSWORD}", "--cacert", str(self.folder / "tests.ca.pem")]
        shown = Path(f"/proc/{web.process.pid}/cmdline").read_bytes().decode()
        for path in ("/", "/metrics", "/config", "/-/ready", "/targets", "/api/v1/targets"):
            done = subprocess.run(
                ["curl", "--silent", "--include", *who, web.url + path], capture_output=True
            )
            self.assertEqual(done.returncode, 0)
            shown += done.stdout.decode()
        for wrong in (["--user", f"{USER}:{PASSWORD}x"], ["--header", f"X: {PASSWORD}"]):
            curl(web.url + "/metrics", *who[2:], *wrong)
        for broken in (
            text.replace("tls_server_config", "tls_server_confug"),
            text.replace(hashed, PASSWORD),
            text.replace("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n    ="),
        ):
            file = self.folder / "broken.yml"
            file.write_text(broken)
            done = subprocess.run(
                [*web.command, "--config.check", f"--web.config.file={file}"][:1]
                + ["-r", "/nonexistent", "--config.check", f"--web.config.file={file}"],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            shown += done.stdout + done.stderr
        shown += web.said()
        self.assertIn("lock_exporter", shown)
        for secret in (PASSWORD, hashed, key.splitlines()[1]):
            self.assertNotIn(secret, shown)


class Logs(Case):
    def test_every_line_can_be_parsed(self):
        for form in ("logfmt", "json"):
            with self.subTest(form):
                web = self.web("", "--log.level=debug", f"--log.format={form}")
                curl(web.url + "/metrics")
                web.__exit__()
                lines = web.said().splitlines()
                self.assertGreater(len(lines), 4)
                for line in lines:
                    self.assertIn("level", self.parsed(form, line), line)

    def parsed(self, form: str, line: str) -> dict:
        if form == "json":
            return json.loads(line)
        pair = r"([a-z_.]+)=(\"(?:[^\"\\]|\\.)*\"|[^\s\"]*)"
        self.assertRegex(line, rf"^{pair}( {pair})*$")
        return dict(re.findall(pair, line))


class Systemd(Case):
    """The two protocols of systemd, played by this test."""

    def start(self, *flags: str, listen: socket.socket | None = None, environment=None):
        words = [web_server.checkout.exporter(), "-r", "/nonexistent", *flags]
        names = environment or {}
        passed = ()
        if listen:
            # What sd_listen_fds(3) wants to see: descriptor 3, and the id of the process itself.
            os.set_inheritable(listen.fileno(), True)
            run = f'exec 3<&{listen.fileno()}; LISTEN_PID=$$ exec "$@"'
            words = ["sh", "-c", run, "sh", *words]
            names, passed = names | {"LISTEN_FDS": "1"}, (listen.fileno(),)
        process = subprocess.Popen(
            words,
            env=os.environ | names,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.stack.callback(process.stdout.close)
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        return process

    def test_a_socket_that_systemd_opened_is_served(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.start("--web.systemd-socket", listen=listener)
            # The socket was there before the exporter: nobody is refused, they wait.
            self.assertIn(b"healthy", servers.get(f"http://127.0.0.1:{port}/-/healthy"))

    def test_a_unix_socket_too(self):
        place = str(self.folder / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
            listener.listen()
            self.start("--web.systemd-socket", listen=listener)
            asked = curl("http://localhost/-/healthy", "--unix-socket", place)
            self.assertEqual(asked, (0, 200))

    def test_systemd_socket_activate_itself(self):
        port = servers.free_port()
        program = web_server.checkout.program("systemd-socket-activate")
        process = subprocess.Popen(
            [program, f"--listen=127.0.0.1:{port}", web_server.checkout.exporter()]
            + ["--web.systemd-socket", "-r", "/nonexistent"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        url = f"http://127.0.0.1:{port}/-/healthy"
        self.assertIn(b"healthy", servers.wait_for("an answer", lambda: servers.get(url)))

    def test_without_a_socket_it_says_so_and_ends(self):
        process = self.start("--web.systemd-socket")
        self.assertIn("systemd passed no socket", process.communicate(timeout=60)[0])
        self.assertEqual(process.returncode, 1)

    def test_systemd_hears_of_start_reload_life_and_end(self):
        place = str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
            supervisor.bind(place)
            supervisor.settimeout(servers.DEADLINE_SECONDS)
            process = self.start(
                "--web.listen-address=127.0.0.1:0",
                environment={"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "300000"},
            )

            def told(wanted: str) -> str:
                while True:
                    words = supervisor.recv(4096).decode()
                    if wanted in words:
                        return words

            told("READY=1")
            told("WATCHDOG=1")
            process.send_signal(signal.SIGHUP)
            self.assertIn("MONOTONIC_USEC=", told("RELOADING=1"))
            told("READY=1")
            for _ in range(5):
                told("WATCHDOG=1")
            process.terminate()
            told("STOPPING=1")
            self.assertEqual(process.wait(60), 0)


class Prefix(Case):
    def test_every_path_stands_behind_the_prefix(self):
        outside = "--web.external-url=https://backup.example.org/locks/"
        for flags, prefix, home in [
            ((outside,), "/locks", "/locks/"),
            (("--web.route-prefix=/a/b",), "/a/b", "/a/b/"),
            ((outside, "--web.route-prefix=/"), "", None),
        ]:
            with self.subTest(flags):
                web = self.web("", *flags)
                for path in ("/", "/metrics", "/-/healthy", "/-/ready"):
                    self.assertEqual(curl(web.url + prefix + path)[1], 200, path)
                self.assertEqual(curl(web.probe_url + prefix + "/-/healthy")[1], 200)
                self.assertEqual(curl(web.probe_url + "/-/healthy")[1], 200)
                if home:
                    self.assertEqual(curl(web.url + "/metrics")[1], 404)
                    for path in ("/", prefix):
                        self.assertEqual(self.sent_to(web, path), home)
                page = servers.get(web.url + prefix + "/").decode()
                links = [link for link in re.findall(r'href="([^"]+)"', page) if ":" not in link]
                self.assertTrue(links)
                for link in links:
                    self.assertFalse(link.startswith("/"), link)
                    there = urllib.parse.urljoin(web.url + prefix + "/", link)
                    self.assertEqual(curl(there)[1], 200, there)
                web.__exit__()

    def sent_to(self, web: Web, path: str) -> str | None:
        with web.connect() as connection:
            ask = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            connection.sendall(ask.encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        found = re.search(rb"^location: (\S+)\r$", answer, re.M)
        return found[1].decode() if found else None


class AutoReload(Case):
    def test_any_file_of_the_configuration_reloads_and_nothing_else(self):
        password, ca, variables = (self.folder / name for name in ("pass", "ca.pem", "variables"))
        folder = self.folder / "env"
        folder.mkdir()
        (folder / "AWS_DEFAULT_REGION").write_text("here")
        for file in (password, ca):
            file.write_text("first\n")
        variables.write_text("A=first\n")
        config = self.folder / "lock_exporter.yml"
        restic = (
            f"repository: /nonexistent, password_file: {password}, cacert: {ca}, "
            f"env_file: {variables}, env_dir: {folder}"
        )
        good = f"targets: [{{name: one, restic: {{{restic}}}}}]\n"
        config.write_text(good)
        web = self.web(
            "",
            f"--config.file={config}",
            "--config.enable-auto-reload",
            "--config.auto-reload-interval=100ms",
        )
        reloads = 0

        def count() -> int:
            return web.said().count("configuration reloaded")

        for change in (
            lambda: password.write_text("second\n"),
            lambda: ca.write_text("second\n"),
            lambda: variables.write_text("A=second\n"),
            lambda: (folder / "AWS_DEFAULT_REGION").write_text("there"),
            lambda: (folder / "AWS_PROFILE").write_text("x"),
            lambda: self.file.write_text("# another\n"),
            lambda: config.write_text(good + "# another\n"),
        ):
            change()
            reloads += 1
            servers.wait_for(f"reload {reloads}", lambda: count() == reloads)
        config.write_text("nonsense")
        servers.wait_for("refusal", lambda: "not reloaded" in web.said())
        page = servers.get(web.url + "/metrics").decode()
        self.assertIn("\nlock_exporter_config_last_reload_successful 0\n", page)
        self.assertIn('target="one"', page)
        self.assertEqual(web.said().count("not reloaded"), 1)
        config.write_text(good)
        servers.wait_for("the good file", lambda: count() == reloads + 1)
        self.assertEqual(web.said().count("a file of the configuration has changed"), reloads + 2)


if __name__ == "__main__":
    unittest.main()
