"""The exporter as a web server, certificates to try on it, and raw connections to it."""

import datetime
import ipaddress
import os
import re
import signal
import socket
import ssl
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import checkout
import servers

# A name of each kind, as they stand in certificates and in client_allowed_sans.
SANS = {
    "dns": (x509.DNSName("prom01.example.org"), "prom01.example.org"),
    "email": (x509.RFC822Name("ops@example.org"), "ops@example.org"),
    "ip": (x509.IPAddress(ipaddress.ip_address("192.0.2.1")), "192.0.2.1"),
    "ip6": (x509.IPAddress(ipaddress.ip_address("2001:db8::1")), "2001:db8::1"),
    "uri": (x509.UniformResourceIdentifier("spiffe://example.org/p"), "spiffe://example.org/p"),
}


class Authority:
    """Makes certificates for servers on 127.0.0.1 and for clients."""

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        own = self.builder(self.name, self.key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = own.sign(self.key, hashes.SHA256())
        self.file = folder / f"{name}.ca.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def builder(self, subject: x509.Name, key) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )

    def issue(self, name: str, sans: list, usage=ExtendedKeyUsageOID.CLIENT_AUTH) -> int:
        """Writes NAME.pem and NAME.key, replacing each whole; returns the serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self.builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        replace(
            self.folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM)
        )
        replace(self.folder / f"{name}.key", private(key))
        return certificate.serial_number

    def server(self) -> int:
        sans = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self.issue("server", sans, ExtendedKeyUsageOID.SERVER_AUTH)

    def own_key(self) -> Path:
        file = self.file.with_suffix(".key")
        file.write_bytes(private(self.key))
        return file


def private(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.rename(file)


def bcrypt_hash(password: str) -> str:
    """As `htpasswd`, at the least cost: nothing here is about guessing."""
    done = subprocess.run(
        ["htpasswd", "-niBC", "4", "x"], input=password, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split(":", 1)[1]


class Web:
    """A running exporter, with its log in a file and a place for probes."""

    def __init__(self, folder: Path, *flags: str, web: Path | None = None, environment=None):
        self.folder = folder
        self.log = folder / "exporter.log"
        listening = ["--web.listen-address=127.0.0.1:0", "--web.probe-listen-address=127.0.0.1:0"]
        if web:
            flags = (*flags, f"--web.config.file={web}")
        if not any(flag.startswith(("--config.file", "-r")) for flag in flags):
            flags = (*flags, "-r", str(folder / "nowhere"))
        self.command = [checkout.exporter(), *listening, *flags]
        self.environment = environment or {}
        self.scheme = "https" if web and "tls_server_config" in web.read_text() else "http"

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | self.environment,
            )
        try:
            self.port = servers.wait_for("listening", lambda: self.logged_port(r"[ \"]address"))
            self.probe_port = servers.wait_for("probes", lambda: self.logged_port("probe_address"))
            servers.wait_for("readiness", lambda: servers.get(self.probe_url + "/-/ready"))
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"{error}\n{self.said()}") from None
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def logged_port(self, name: str) -> int | None:
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}")
        found = re.search(name + r"\"?[=:]\"?127\.0\.0\.1:(\d+)", self.said())
        return int(found[1]) if found else None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def probe_url(self) -> str:
        return f"http://127.0.0.1:{self.probe_port}"

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def connect(self, context: ssl.SSLContext | None = None) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        if context:
            return context.wrap_socket(connection, server_hostname="127.0.0.1")
        return connection


def curl(url: str, *arguments: str) -> tuple[int, int]:
    """Exit code and HTTP status; the status is 0 when there was no answer."""
    done = subprocess.run(
        ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]
        + ["--max-time", "60", *arguments, url],
        capture_output=True,
        text=True,
    )
    return done.returncode, int(done.stdout or 0)
