"""The recipes and the least rights of `docs/`, tried with the text that the pages show.

Policies are judged by moto, nginx and sshd are the real ones with the blocks of the pages, and the
Secrets of VolSync and k8up are folders of their keys. No operator and no wrapper runs here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import yaml

import checkout
import exporter
import restic_repo
import servers
import sshd

BUCKET = "backups"
REPOSITORY = "db01"
REGION = "us-east-1"


def blocks(page: str, language: str) -> list[str]:
    text = (checkout.ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def configurations(page: str) -> list[str]:
    """The exporter's own files on a page, not what a chart makes them of."""
    return [text for text in blocks(page, "yaml") if "targets" in yaml.safe_load(text)]


def init(repository: Path) -> None:
    command = [restic_repo.restic(), "init", "-r", str(repository)]
    restic_repo.run(command, RESTIC_PASSWORD=restic_repo.PASSWORD)


def check(*words: str, **environment: str) -> tuple[int, str]:
    """`check` with an environment of only what it is given."""
    done = subprocess.run(
        [checkout.exporter(), "check", *words],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=exporter.CHECK_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


class TemporaryFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="recipes.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)


class Moto(servers.Server):
    """An S3 server that, once it is told to, judges every request by the policies of its users."""

    ready_path = "/moto-api/"

    def __init__(self, folder: Path):
        program = Path(sys.executable).with_name("moto_server")
        command = [str(program), "-H", "127.0.0.1"]
        super().__init__("moto", folder, lambda port: [*command, f"-p{port}"])

    def client(self, service: str, key: str = "admin", secret: str = "admin"):
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    def user(self, name: str, policy: str) -> dict[str, str]:
        """The variables of a user who may do what a policy says."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="read", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_DEFAULT_REGION": REGION,
        }

    def judge_from_now_on(self) -> None:
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth",
            data=b"0",
            method="POST",
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request).close()


class S3(TemporaryFolder):
    def setUp(self):
        super().setUp()
        repository = self.folder / "repository"
        init(repository)
        self.moto = self.enterContext(Moto(self.folder))
        self.location = f"s3:{self.moto.url}/{BUCKET}/{REPOSITORY}"
        admin = self.moto.client("s3")
        admin.create_bucket(Bucket=BUCKET)
        for path in filter(Path.is_file, repository.rglob("*")):
            key = f"{REPOSITORY}/{path.relative_to(repository)}"
            admin.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
        admin.put_object(Bucket=BUCKET, Key=f"{REPOSITORY}/data/00/x", Body=b"x")
        self.policies = blocks("security.md", "json")
        self.assertEqual(len(self.policies), 2)

    def cannot_do_more(self, user: dict[str, str]) -> None:
        s3 = self.moto.client("s3", user["AWS_ACCESS_KEY_ID"], user["AWS_SECRET_ACCESS_KEY"])
        for verb, arguments in (
            (s3.get_object, {"Key": f"{REPOSITORY}/data/00/x"}),
            (s3.put_object, {"Key": f"{REPOSITORY}/locks/x", "Body": b""}),
            (s3.delete_object, {"Key": f"{REPOSITORY}/config"}),
            (s3.get_object, {"Key": "another/config"}),
        ):
            with self.assertRaisesRegex(Exception, "AccessDenied"):
                verb(Bucket=BUCKET, **arguments)

    def test_the_policies_are_enough_and_no_more(self):
        with_password, sealed = self.policies
        password = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
        reader = self.moto.user("reader", with_password)
        lister = self.moto.user("lister", sealed)
        nobody = self.moto.user("nobody", sealed.replace(f"{BUCKET}", "another"))
        self.moto.judge_from_now_on()
        code, said = check("-r", self.location, **reader, **password)
        self.assertEqual(code, 0, said)
        self.assertNotIn("without a password", said)
        code, said = check("-r", self.location, **lister)
        self.assertEqual(code, 0, said)
        self.assertIn("without a password", said)
        for user in (reader, lister):
            self.cannot_do_more(user)
        code, said = check("-r", self.location, **nobody)
        self.assertEqual(code, 3, said)
        self.assertIn("permission", said)

    def configured(self, block: str, secrets: dict[str, dict[str, str]]) -> tuple[int, str]:
        """`check` with a configuration of a page whose folders below /secrets are made."""
        for name, variables in secrets.items():
            folder = self.folder / "secrets" / name
            folder.mkdir(parents=True)
            for variable, value in variables.items():
                (folder / variable).write_text(value)
        text = block.replace("/secrets/", f"{self.folder}/secrets/")
        text = re.sub(r"s3:http\S+", self.location, text)
        file = self.folder / "lock_exporter.yml"
        file.write_text(text)
        return check(f"--config.file={file}")

    def test_secrets_of_volsync_are_taken_as_they_are(self):
        volsync, _ = configurations("recipes/kubernetes.md")
        secret = self.moto.user("volsync", self.policies[0])
        secret |= {"RESTIC_REPOSITORY": self.location, "RESTIC_PASSWORD": restic_repo.PASSWORD}
        self.moto.judge_from_now_on()
        code, said = self.configured(volsync, {"mysql-restic": secret})
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"ok +prod/mysql +free")
        self.assertNotIn("without a password", said)

    def test_secrets_of_k8up_are_named_key_by_key(self):
        _, k8up = configurations("recipes/kubernetes.md")
        secret = self.moto.user("k8up", self.policies[0])
        self.moto.judge_from_now_on()
        # What the mounted volume of the page makes of the Secret's keys.
        (volume,) = (
            text for text in blocks("recipes/kubernetes.md", "yaml") if text.startswith("volumes:")
        )
        items = yaml.safe_load(volume)["volumes"][0]["secret"]["items"]
        self.assertLessEqual({item["path"] for item in items}, set(secret))
        secrets = {
            "backup-repo": {"password": restic_repo.PASSWORD},
            "backup-credentials-env": secret,
        }
        code, said = self.configured(k8up, secrets)
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"ok +prod/app +free")
        self.assertNotIn("without a password", said)


class RestServer(servers.Server):
    def __init__(self, folder: Path, *flags: str):
        program = os.environ.get("REST_SERVER") or checkout.program("restic-rest-server")
        super().__init__(
            "rest-server",
            folder,
            lambda port: [program, f"--listen=127.0.0.1:{port}", f"--path={folder}/srv", *flags],
        )

    def is_ready(self) -> bool:
        try:
            servers.get(self.url)
        except urllib.error.HTTPError:
            pass
        return True


class Nginx(servers.Server):
    """nginx with one server of a page."""

    def __init__(self, folder: Path, block: str):
        self.block = block
        super().__init__("nginx", folder, self.start)

    def start(self, port: int) -> list[str]:
        file = self.folder / "nginx.conf"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        server = re.sub(r"listen 127\.0\.0\.1:\d+;", f"listen 127.0.0.1:{port};", self.block)
        file.write_text(
            f"daemon off; pid {self.folder}/nginx.pid; error_log stderr; worker_processes 1;\n"
            f"events {{}}\nhttp {{ access_log off; {paths}\n{server}}}\n"
        )
        return ["/usr/sbin/nginx", "-c", str(file), "-e", "stderr"]

    def status(self, method: str, path: str, user: str = "") -> int:
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]
        done = subprocess.run(
            [*command, *(["-u", user] if user else []), self.url + path],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return int(done.stdout)

    def is_ready(self) -> bool:
        return self.status("GET", "/") in (401, 403)


class Rest(TemporaryFolder):
    def setUp(self):
        super().setUp()
        (self.folder / "srv").mkdir()
        for name in ("alice", "bob"):
            init(self.folder / "srv" / name)
        self.password = {"RESTIC_PASSWORD": restic_repo.PASSWORD}

    def users(self, *names: str) -> Path:
        file = self.folder / "htpasswd"
        for name in names:
            flags = "-bB" if file.exists() else "-bBc"
            restic_repo.run(["htpasswd", flags, str(file), name, f"{name}-secret"])
        file.chmod(0o644)
        return file

    def test_a_user_of_private_repositories_reads_its_own(self):
        file = self.users("alice")
        flags = ("--private-repos", "--append-only", f"--htpasswd-file={file}")
        with RestServer(self.folder, *flags) as server:
            user = {"RESTIC_REST_USERNAME": "alice", "RESTIC_REST_PASSWORD": "alice-secret"}
            code, said = check("-r", f"rest:{server.url}/alice/", **user, **self.password)
            self.assertEqual(code, 0, said)
            code, said = check("-r", f"rest:{server.url}/bob/", **user, **self.password)
            self.assertEqual(code, 3, said)
            self.assertIn("(auth)", said)

    def test_nginx_lets_through_what_the_exporter_reads_and_nothing_else(self):
        file = self.users("monitoring")
        with RestServer(self.folder, "--no-auth") as server:
            (block,) = blocks("recipes/rest-server.md", "nginx")
            block = block.replace("http://127.0.0.1:8000", server.url)
            block = block.replace("/etc/nginx/lock-exporter.htpasswd", str(file))
            with Nginx(self.folder, block) as proxy:
                user = {"RESTIC_REST_USERNAME": "monitoring"}
                user["RESTIC_REST_PASSWORD"] = "monitoring-secret"
                location = f"rest:{proxy.url}/alice/"
                code, said = check("-r", location, **user, **self.password)
                self.assertEqual(code, 0, said)
                self.assertNotIn("without a password", said)
                lock = "locks/" + "a" * 64
                name = "monitoring:monitoring-secret"
                for method, path, wanted in (
                    ("GET", "/alice/config", 200),
                    ("GET", "/alice/data/", 403),
                    ("GET", "/alice/snapshots/", 403),
                    ("GET", "/", 403),
                    ("POST", f"/alice/{lock}", 403),
                    ("DELETE", f"/alice/{lock}", 403),
                    ("DELETE", "/alice/config", 403),
                ):
                    with self.subTest(method=method, path=path):
                        self.assertEqual(proxy.status(method, path, name), wanted)
                self.assertEqual(proxy.status("GET", "/alice/config"), 401)

    def test_beside_its_folder_no_password_is_needed(self):
        block = blocks("recipes/rest-server.md", "yaml")[0]
        file = self.folder / "lock_exporter.yml"
        file.write_text(block.replace("/srv/rest-server", str(self.folder / "srv")))
        code, said = check(f"--config.file={file}")
        self.assertEqual(code, 0, said)
        self.assertIn("2 of 2 targets were read without a password", said)


class Sftp(TemporaryFolder):
    def test_a_login_that_only_reads_below_a_folder_is_enough(self):
        # sshd demands that the folder of a chroot and all above it belong to root and to nobody
        # else, which is not so in /tmp.
        place = Path(tempfile.mkdtemp(prefix="recipes.", dir="/srv"))
        self.addCleanup(subprocess.run, ["rm", "-rf", place], check=True)
        place.chmod(0o755)
        init(place / "db01")
        (block,) = blocks("security.md", "sshd")
        lines = block.replace("User lock-exporter", "User root").replace("/srv/restic", str(place))
        self.assertIn("Match User root", lines)
        with sshd.Sshd(self.folder, *lines.splitlines()) as server:
            server.write_client_files(self.folder / "client", "nas", str(server.keys / "user"))
            ssh = f"ssh -F {self.folder}/client/config"
            ssh += f" -o UserKnownHostsFile={self.folder}/client/known_hosts"
            option = f"sftp.command={ssh} nas -s sftp"
            password = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
            code, said = check("-o", option, "-r", "sftp:nas:/db01", **password)
            self.assertEqual(code, 0, said)
            batch = self.folder / "batch"
            for command in ("rm /db01/config", f"put {batch} /db01/locks/x", "mkdir /x"):
                batch.write_text(command + "\n")
                sftp = ["sftp", *ssh.split()[1:], "-b", str(batch), "nas"]
                done = subprocess.run(sftp, capture_output=True, text=True, timeout=60)
                with self.subTest(command):
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn("ermission denied", done.stderr)


class Folders(TemporaryFolder):
    def test_a_group_reads_a_repository_whose_config_it_may_read(self):
        repository = self.folder / "repository"
        init(repository)
        member = ("setpriv", "--reuid=65534", "--regid=65534", "--groups=1")
        command = [*member, checkout.exporter(), "check", "-r", str(repository)]
        environment = os.environ | {"RESTIC_PASSWORD": restic_repo.PASSWORD}

        def look() -> subprocess.CompletedProcess:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120
            )

        self.assertIn("(permission)", look().stdout)
        (line,) = blocks("security.md", "sh")
        line = line.replace("backup ", "1 ", 1).replace("/srv/restic/db01", str(repository))
        subprocess.run(["sh", "-c", line], check=True)
        done = look()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("without a password", done.stdout)


class Wrappers(TemporaryFolder):
    def test_a_lock_file_of_resticprofile_is_held_by_the_restic_that_it_names(self):
        block = blocks("recipes/wrappers.md", "yaml")[0]
        config = yaml.safe_load(block)
        (target,) = (target for target in config["targets"] if "file" in target)
        file = self.folder / "profile.lock"
        target["file"]["path"] = str(file)
        config["targets"] = [target]
        (self.folder / "lock_exporter.yml").write_text(yaml.safe_dump(config))
        flag = f"--config.file={self.folder / 'lock_exporter.yml'}"

        def look() -> dict:
            _, said = check(flag, "--output=json")
            return json.loads(said)["targets"][0]

        self.assertEqual(look()["state"], "free")
        restic = subprocess.Popen(["sleep", "600"])
        self.addCleanup(restic.kill)
        # As resticprofile's lock/lock.go writes it: who has it, then each restic that it starts.
        first = "root on Monday, 30-Nov-26 21:00:00 UTC from web03"
        file.write_text(f"{first}\n{restic.pid}")
        self.assertEqual(look()["state"], "exclusive")
        self.assertEqual([lock["stale_reason"] for lock in look()["locks"]], [None])
        restic.send_signal(signal.SIGKILL)
        restic.wait()
        found = look()
        self.assertEqual(found["state"], "exclusive")
        self.assertEqual([lock["stale_reason"] for lock in found["locks"]], ["gone"])


if __name__ == "__main__":
    unittest.main()
