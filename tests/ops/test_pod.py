"""The rendered chart at work: the real exporter, started with what a kubelet would give it."""

import contextlib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

import chart
import chart_pod
import chart_suites
import exporter
import restic_places
import servers
import sshd

# In the tests' own Secrets; no password of anybody.
PASSWORD = restic_places.PASSWORD
WEB_USER = "prometheus:test"
LOCK_FILE_OWNER = 1234


def dummy_secrets() -> dict[str, dict[str, str]]:
    """What the examples in `ci` want to be there."""
    s3 = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    config = yaml.safe_dump(chart.values("minimal")["config"])
    return {
        "restic-db01": {"password": "a", "other": "b"},
        "restic-nas": {"password": "a"},
        "restic-db01-s3": s3,
        "my-locks": {"config.yml": config, "lock_exporter.yml": config},
        "backup-ssh-key": {"id_ed25519": "no key"},
        "rclone": {"rclone.conf": ""},
        "restic": {"password": "a"},
    }


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        restic_places.require_namespaces()
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.folder.chmod(0o755)
        cls.tls = chart_pod.certificate(cls.folder)

    def pod(self, given: dict, secrets: dict, **more) -> chart_pod.Pod:
        objects = chart.render(chart_suites.merge(given, chart_pod.free_ports()))
        folder = Path(tempfile.mkdtemp(dir=self.folder)) / "pod"
        folder.parent.chmod(0o755)
        return chart_pod.Pod(folder, objects, secrets, **more)


class Accepted(Pods):
    def test_the_exporter_takes_the_arguments_and_files_of_every_example(self):
        secrets = dummy_secrets() | {
            "lock-exporter-tls": self.tls,
            "my-web": {
                "tls.yml": yaml.safe_dump(
                    {"tls_server_config": {"cert": self.tls["tls.crt"], "key": self.tls["tls.key"]}}
                )
            },
        }
        maps = {"my-locks": secrets["my-locks"]}
        for name in chart.VALUES:
            with self.subTest(name):
                pod = chart_pod.Pod(self.folder / name, chart.ci(name), secrets, maps)
                done = pod.check()
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_schema_knows_the_keys_of_the_configuration(self):
        schema = chart.schema()["properties"]["config"]
        target = schema["properties"]["targets"]["items"]
        own = {"passwordSecret", "envFromSecret"}
        nowhere = "an unknown key that is near to nothing"
        restic, file = {"repository": "/a"}, {"path": "/a"}
        for node, config in (
            (schema, {nowhere: 1}),
            (schema["properties"]["scan"], {"scan": {nowhere: 1}}),
            (target, {"targets": [{"name": "a", "restic": restic, nowhere: 1}]}),
            (
                target["properties"]["restic"],
                {"targets": [{"name": "a", "restic": restic | {nowhere: 1}}]},
            ),
            (
                target["properties"]["file"],
                {"targets": [{"name": "a", "file": file | {nowhere: 1}}]},
            ),
        ):
            given = {"existingConfigMap": "mine"}
            maps = {"mine": {"lock_exporter.yml": yaml.safe_dump(config)}}
            told = self.pod(given, {}, configmaps=maps).check()
            text = told.stdout + told.stderr
            line = next(line for line in text.splitlines() if "known keys: " in line)
            known = set(line.split("known keys: ")[1].strip().strip('"').split(", "))
            self.assertEqual(set(node["properties"]) - own, known)


class Running(Pods):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        restic = restic_places.Restic(os.environ["RESTIC_018"])
        empty = restic_places.make_template(restic, cls.folder)
        cls.repository = restic_places.Folder(cls.folder / "repository")
        cls.repository.fill(empty)
        with restic_places.holding(restic, cls.repository, "shared", hostname="web03") as holder:
            holder.kill()
        # As a server would show it to whoever has the key.
        for path in (cls.repository.path, *cls.repository.path.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o444)

    def mounted(self, *targets: dict, **more) -> dict:
        """Values with the repository mounted at /srv/restic."""
        return {
            "config": {"scan": {"interval": "1s"}, "targets": list(targets)},
            "extraVolumes": [{"name": "srv", "hostPath": {"path": str(self.repository.path)}}],
            "extraVolumeMounts": [{"name": "srv", "mountPath": "/srv/restic", "readOnly": True}],
        } | more

    def samples(self, page: str, target: str) -> exporter.Samples:
        return exporter.samples(page, target)

    def targets(self, page: str) -> set[str]:
        return {
            sample.labels["target"]
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "lock_target_info"
        }

    def test_passwords_and_variables_come_from_secrets(self):
        given = self.mounted(
            {
                "name": "by-key",
                "restic": {
                    "repository": "/srv/restic",
                    "passwordSecret": {"name": "restic-db01", "key": "password"},
                },
            },
            {
                "name": "by-variables",
                "restic": {"envFromSecret": "volsync"},
            },
        )
        secrets = {
            "restic-db01": {"password": PASSWORD},
            # As VolSync keeps it.
            "volsync": {"RESTIC_REPOSITORY": "/srv/restic", "RESTIC_PASSWORD": PASSWORD},
        }
        with self.pod(given, secrets) as pod:
            for name in ("by-key", "by-variables"):
                found = servers.wait_for(
                    "a scan with the password",
                    lambda name=name: self.held(pod, name),
                )
                self.assertEqual(found[0][0]["hostname"], "web03")
            self.assertEqual(pod.helm_test().returncode, 0, pod.helm_test().stdout)
            self.assertEqual(pod.terminate(), 0, pod.log.read_text())
            # It could write where it remembers, and nowhere else.
            self.assertTrue(list(pod.path("state").iterdir()))

    def held(self, pod: chart_pod.Pod, target: str) -> list:
        return self.samples(pod.metrics(), target).found.get("lock_hold_info", [])

    def test_a_changed_configuration_is_taken_into_use(self):
        first = {"name": "first", "restic": {"repository": "/srv/restic"}}
        given = self.mounted(first, configReloader={"interval": "1s"})
        with self.pod(given, {}) as pod:
            self.assertEqual(self.targets(pod.metrics()), {"first"})
            text = yaml.safe_dump({"targets": [first | {"name": "second"}]})
            pod.write("config", {"lock_exporter.yml": text}, 0o644)
            servers.wait_for(
                "the new target", lambda: self.targets(pod.metrics()) == {"second"}
            )

    def test_the_kubelet_needs_no_password(self):
        given = self.mounted({"name": "a", "restic": {"repository": "/srv/restic"}})
        given["webConfig"] = {
            "tlsSecret": "lock-exporter-tls",
            "config": chart.values("tls")["webConfig"]["config"],
        }
        with self.pod(given, {"lock-exporter-tls": self.tls}) as pod:
            url = f"https://127.0.0.1:{pod.port('http')}"
            self.assertEqual(pod.get(f"{url}/metrics")[0], 401)
            self.assertEqual(pod.get(f"{url}/-/healthy")[0], 401)
            self.assertEqual(self.targets(pod.metrics(WEB_USER, "https")), {"a"})
            probes = f"http://127.0.0.1:{pod.port('probe')}"
            self.assertEqual(pod.get(f"{probes}/metrics")[0], 404)
            done = pod.helm_test()
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("wants a password", done.stdout)

    def test_below_a_prefix_with_tls_on_the_main_port(self):
        given = self.mounted({"name": "a", "restic": {"repository": "/srv/restic"}})
        given |= {
            "web": {"routePrefix": "/locks"},
            "webConfig": {"tlsSecret": "lock-exporter-tls", "probePort": 0},
            "serviceMonitor": {"enabled": True},
        }
        with self.pod(given, {"lock-exporter-tls": self.tls}) as pod:
            (endpoint,) = chart.only(pod.objects, "ServiceMonitor")["spec"]["endpoints"]
            page = pod.metrics(scheme=endpoint["scheme"], path=endpoint["path"])
            self.assertEqual(self.targets(page), {"a"})
            self.assertEqual(pod.helm_test().returncode, 0)

    def test_repositories_are_reached_over_ssh_with_a_mounted_key(self):
        """The key belongs to root and the pod's group may read it, which ssh has to stand."""
        with sshd.Sshd(Path(self.enterContext(tempfile.TemporaryDirectory()))) as server:
            config = (
                f"Host nas\n  HostName 127.0.0.1\n  Port {server.port}\n  User root\n"
                "  IdentityFile /etc/lock-exporter/ssh/id_ed25519\n  IdentitiesOnly yes\n"
            )
            restic = {
                "repository": f"sftp:nas:{self.repository.path}",
                "passwordSecret": {"name": "restic-nas", "key": "password"},
            }
            given = {
                "config": {"targets": [{"name": "nas", "restic": restic}]},
                "ssh": {
                    "config": config,
                    "knownHosts": server.known_host(),
                    "existingSecret": "key",
                },
            }
            secrets = {
                "restic-nas": {"password": PASSWORD},
                "key": {"id_ed25519": (server.keys / "user").read_text()},
            }
            with self.pod(given, secrets) as pod:
                found = servers.wait_for("a scan over ssh", lambda: self.held(pod, "nas"))
                self.assertEqual(found[0][0]["hostname"], "web03")

    def test_shards_share_the_targets(self):
        names = [f"db{number:02}" for number in range(12)]
        targets = [{"name": name, "restic": {"repository": "/srv/restic"}} for name in names]
        given = self.mounted(
            *targets, kind="StatefulSet", sharding={"enabled": True, "shards": 2}
        )
        seen = []
        for ordinal in range(2):
            with self.pod(given, {}, name=f"demo-lock-exporter-{ordinal}") as pod:
                page = pod.metrics()
                seen.append(self.targets(page))
                self.assertRegex(page, rf'lock_exporter_shard_ordinal.* {ordinal}\b')
        self.assertEqual(seen[0] | seen[1], set(names))
        self.assertEqual(seen[0] & seen[1], set())
        self.assertTrue(seen[0] and seen[1])

    def test_a_daemonset_sees_who_holds_a_lock_file_of_its_node(self):
        """In a process namespace of its own, and in a folder that only its owner may enter."""
        folder = self.folder / "private"
        folder.mkdir(mode=0o700)
        file = folder / "job.lock"
        file.touch()
        for path in (folder, file):
            os.chown(path, LOCK_FILE_OWNER, LOCK_FILE_OWNER)
        holder = subprocess.Popen(
            [
                *("setpriv", f"--reuid={LOCK_FILE_OWNER}", f"--regid={LOCK_FILE_OWNER}"),
                *("--clear-groups", "flock", "--no-fork", str(file), "sleep", "600"),
            ]
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        given = {
            "kind": "DaemonSet",
            "config": {
                "scan": {"interval": "1s"},
                "targets": [{"name": "job", "file": {"path": str(file)}}],
            },
        }
        with self.pod(given, {}, node="node-7") as pod:
            found = servers.wait_for("the lock", lambda: self.held(pod, "job"))
            labels = found[0][0]
            self.assertEqual((labels["pid"], labels["command"]), (str(holder.pid), "sleep"))
            self.assertIn('host="node-7"', pod.metrics())


if __name__ == "__main__":
    unittest.main()
