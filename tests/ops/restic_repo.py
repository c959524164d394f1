"""Real restic repositories for tests: made by the fixture script, changed as restic itself would.

restic is run as a program; what it cannot do (a lock with an old time) is written here in its
format: 16 bytes IV, AES-256-CTR, 16 bytes Poly1305-AES; the file's name is the SHA-256 of its bytes
(restic `internal/crypto/crypto.go`, `doc/design.rst`).
"""

import base64
import datetime
import hashlib
import json
import os
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

import checkout

PASSWORD = "fixture"


def restic() -> str:
    return os.environ.get("RESTIC_014") or checkout.program("restic")


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done


def make_fixtures(folder: Path, names: list[str]) -> dict[str, dict]:
    """The named repositories below `folder`, as the manifest describes them."""
    run(
        [str(checkout.FIXTURE_MAKER), str(folder)],
        RESTIC=restic(),
        FIXTURE_ASK="0",
        FIXTURE_ONLY=f"^({'|'.join(names)})$",
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    made = {repository["name"]: repository for repository in manifest["repositories"]}
    assert set(made) == set(names), manifest["skipped"]
    return made


def stop_fixtures(folder: Path) -> None:
    run([str(checkout.FIXTURE_MAKER), "--stop", str(folder)])


def unlock(repository: Path, *options: str) -> None:
    """`restic unlock` where it can only signal processes of its own.

    restic sends SIGHUP to the PID in each lock of its host; in new namespaces it has another host
    name and sees no process but itself.
    """
    run(
        [
            "unshare",
            "--pid",
            "--uts",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            'hostname unlocker && exec "$@"',
            "sh",
            restic(),
            "-q",
            "-r",
            str(repository),
            "unlock",
            *options,
        ],
        RESTIC_PASSWORD=PASSWORD,
        RESTIC_CACHE_DIR=str(repository.parent / "cache"),
    )


def lock_files(repository: Path) -> list[Path]:
    return sorted(path for path in (repository / "locks").iterdir() if len(path.name) == 64)


class Key:
    """A repository's master key, or the one that a password gives."""

    def __init__(self, encrypt: bytes, mac_k: bytes, mac_r: bytes):
        self.encrypt = encrypt
        self.mac_k = mac_k
        self.mac_r = mac_r

    @classmethod
    def of(cls, repository: Path) -> "Key":
        done = run(
            [restic(), "-q", "-r", str(repository), "cat", "masterkey", "--no-lock"],
            RESTIC_PASSWORD=PASSWORD,
            RESTIC_CACHE_DIR=str(repository.parent / "cache"),
        )
        key = json.loads(done.stdout)
        mac = key["mac"]
        return cls(*(base64.b64decode(text) for text in (key["encrypt"], mac["k"], mac["r"])))

    def crypt(self, nonce: bytes, text: bytes) -> bytes:
        cipher = Cipher(algorithms.AES(self.encrypt), modes.CTR(nonce)).encryptor()
        return cipher.update(text) + cipher.finalize()

    def tag(self, nonce: bytes, sealed: bytes) -> bytes:
        # A single block of AES is what Poly1305-AES asks for; the nonce is never used twice.
        block = Cipher(algorithms.AES(self.mac_k), modes.ECB()).encryptor()
        pad = block.update(nonce) + block.finalize()
        return Poly1305.generate_tag(self.mac_r + pad, sealed)

    def open(self, text: bytes) -> bytes:
        nonce, sealed, tag = text[:16], text[16:-16], text[-16:]
        assert self.tag(nonce, sealed) == tag, "not sealed with this key"
        return self.crypt(nonce, sealed)

    def seal(self, plain: bytes) -> bytes:
        nonce = os.urandom(16)
        sealed = self.crypt(nonce, plain)
        return nonce + sealed + self.tag(nonce, sealed)


def name_of(text: bytes) -> str:
    """The name under which restic stores these bytes."""
    return hashlib.sha256(text).hexdigest()


def set_key_cost(repository: Path, password: str, master: str, cost: int = 1024) -> None:
    """Replaces the key file by one for the same password; the usual cost is one of milliseconds.

    It takes a KiB for each unit. restic makes keys that take half a second on purpose; it opens any
    (`internal/repository/key.go`, `internal/crypto/kdf.go`).
    """
    salt = os.urandom(64)
    parameters = {"N": cost, "r": 8, "p": 1}
    memory = 2 * 1024 * cost + (1 << 20)
    derived = hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=8, p=1, dklen=64, maxmem=memory
    )
    sealed = Key(derived[:32], derived[32:48], derived[48:]).seal(master.encode())
    encoded = {"salt": salt, "data": sealed}
    text = json.dumps(
        {"created": "2026-01-02T03:04:05Z", "username": "u", "hostname": "h", "kdf": "scrypt"}
        | parameters
        | {name: base64.b64encode(value).decode() for name, value in encoded.items()}
    ).encode()
    (old,) = (repository / "keys").iterdir()
    old.unlink()
    old.with_name(name_of(text)).write_bytes(text)


def age_lock(repository: Path, seconds: float) -> dict:
    """Makes the only lock of a repository look as it would have, left that long ago."""
    (old,) = lock_files(repository)
    done = run(
        [restic(), "-q", "-r", str(repository), "cat", "lock", "--no-lock", old.name],
        RESTIC_PASSWORD=PASSWORD,
        RESTIC_CACHE_DIR=str(repository.parent / "cache"),
    )
    lock = json.loads(done.stdout)
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    lock["time"] = then.isoformat()
    new = write_lock(repository, Key.of(repository), lock)
    os.utime(new, (then.timestamp(), then.timestamp()))
    old.unlink()
    return lock


def write_lock(repository: Path, key: Key, lock: dict) -> Path:
    """Writes a lock without compressing it, which every restic reads."""
    text = key.seal(json.dumps(lock).encode())
    path = repository / "locks" / name_of(text)
    path.write_bytes(text)
    path.chmod(0o400)
    return path
