"""A real sshd on a free port of 127.0.0.1, with keys of its own and ssh's files for a client."""

import socket
import subprocess
from pathlib import Path

import servers

SSHD = "/usr/sbin/sshd"


class Sshd(servers.Server):
    """Logs in root by key; `extra` are lines of its configuration."""

    def __init__(self, folder: Path, *extra: str):
        self.keys = folder / "ssh"
        self.keys.mkdir()
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys / name], check=True
            )
        (self.keys / "user.pub").rename(self.keys / "authorized_keys")
        self.extra = extra
        # sshd's privilege separation wants it.
        Path("/run/sshd").mkdir(exist_ok=True)
        super().__init__("sshd", folder, self.start)

    def start(self, port: int) -> list[str]:
        file = self.folder / "sshd_config"
        lines = (
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.keys / 'host'}",
            "PidFile none",
            f"AuthorizedKeysFile {self.keys / 'authorized_keys'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            "Subsystem sftp internal-sftp",
            *self.extra,
        )
        file.write_text("\n".join(lines) + "\n")
        return [SSHD, "-f", str(file), "-D", "-e"]

    def is_ready(self) -> bool:
        if self.process and self.process.poll() is not None:
            raise AssertionError(f"sshd ended with {self.process.returncode}")
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            return connection.recv(4) == b"SSH-"

    def known_host(self) -> str:
        kind, key, *_ = (self.keys / "host.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {kind} {key}\n"

    def write_client_files(self, folder: Path, alias: str, identity: str) -> None:
        """`config` and `known_hosts` with which `ssh ALIAS` logs in; the key is at `identity`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "known_hosts").write_text(self.known_host())
        (folder / "config").write_text(
            f"Host {alias}\n  HostName 127.0.0.1\n  Port {self.port}\n  User root\n"
            f"  IdentityFile {identity}\n  IdentitiesOnly yes\n"
        )
