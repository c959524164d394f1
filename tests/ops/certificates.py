"""An authority of a test's own, and certificates of 127.0.0.1 that it signed, expired ones too."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """The authority, whose certificate is written to `path`."""

    def __init__(self, path: Path):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name("authority")
        certificate = self.builder("authority", self.key.public_key(), 365).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        path.write_bytes(self.sign(certificate))

    def builder(self, subject: str, key, days_left: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * DAY)
            .not_valid_after(now + days_left * DAY)
        )

    def sign(self, builder: x509.CertificateBuilder) -> bytes:
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def issue(self, path: Path, days_left: int) -> Path:
        """Writes a certificate and its key into one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = self.builder("server", key.public_key(), days_left)
        text = self.sign(builder.add_extension(here, critical=False))
        text += key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(text)
        return path
