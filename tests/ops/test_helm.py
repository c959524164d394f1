"""The chart: rendered by Helm's own engine, and checked object by object."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import helm_python
import jsonschema
import kubernetes_validate
import yaml

import checkout
import test_rendering

KUBERNETES = "1.37"
# The oldest one the chart says it supports.
KUBERNETES_OLDEST = "v1.25.0"
SCHEMAS = Path(__file__).parent / "schemas"
OPERATOR = "monitoring.coreos.com/v1"
VALUES = {
    path.name.removesuffix("-values.yaml"): path
    for path in sorted((checkout.CHART / "ci").glob("*-values.yaml"))
}


def values(name: str) -> dict:
    return yaml.safe_load(VALUES[name].read_text())


@contextlib.contextmanager
def quiet():
    """Helm's library tells standard error of each symbolic link it follows; errors are raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def render_files(given: dict, chart_path: Path = checkout.CHART) -> dict[str, str]:
    with quiet(), helm_python.Chart.load(str(chart_path)) as chart:
        return chart.render(given, name="demo", namespace="prod")


def render(given: dict) -> list[dict]:
    """All objects, as the API server would get them."""
    return [
        document
        for name, text in render_files(given).items()
        if not name.endswith("NOTES.txt")
        for document in yaml.safe_load_all(text)
        if document
    ]


def notes(given: dict) -> str:
    return next(text for name, text in render_files(given).items() if name.endswith("NOTES.txt"))


def only(objects: list[dict], kind: str) -> dict:
    (found,) = [item for item in objects if item["kind"] == kind]
    return found


def strict(schema):
    """A copy that refuses unknown keys, as the API server does with fieldValidation=Strict."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    # Metadata has no properties here: the API server knows them by heart.
    if made.get("type") == "object" and made.get("properties"):
        made.setdefault("additionalProperties", False)
    return made


def check_custom(item: dict) -> None:
    schema = strict(json.loads((SCHEMAS / f"{item['kind'].lower()}.json").read_text()))
    jsonschema.Draft7Validator(schema).validate(item)


class Rendering(unittest.TestCase):
    def setUp(self):
        self.rendered = {name: render(values(name)) for name in VALUES}

    def test_lint(self):
        for version in (KUBERNETES_OLDEST, f"v{KUBERNETES}.0"):
            with quiet():
                report = helm_python.lint(str(checkout.CHART), strict=True, kube_version=version)
            self.assertFalse(report["errors"], report)

    def test_defaults_render_without_any_custom_resource(self):
        kinds = sorted(item["kind"] for item in render({}))
        self.assertEqual(kinds, ["ConfigMap", "Deployment", "Service", "ServiceAccount"])

    def test_every_object_is_valid(self):
        for name, objects in self.rendered.items():
            with self.subTest(values=name):
                for item in objects:
                    if item["apiVersion"] == OPERATOR:
                        check_custom(item)
                    else:
                        kubernetes_validate.validate(item, KUBERNETES, strict=True)

    def test_the_operator_schemas_find_mistakes(self):
        rule = only(render(values("monitoring")), "PrometheusRule")
        rule["spec"]["groups"][0]["rules"][0]["exprr"] = "up"
        self.assertRaises(jsonschema.ValidationError, check_custom, rule)
        rule = only(render(values("monitoring")), "PrometheusRule")
        rule["spec"]["groups"][1]["rules"][0]["for"] = "30"
        self.assertRaises(jsonschema.ValidationError, check_custom, rule)

    def test_objects_carry_the_labels_and_the_namespace(self):
        for name, objects in self.rendered.items():
            with self.subTest(values=name):
                namespace = "monitoring" if name == "everything" else "prod"
                for item in objects:
                    meta = item["metadata"]
                    self.assertIn(meta["namespace"], {namespace, "monitoring"})
                    self.assertEqual(meta["labels"]["app.kubernetes.io/instance"], "demo")
                    self.assertLessEqual(len(meta["name"]), 63)

    def test_selectors_find_the_pods_and_never_change(self):
        for name, objects in self.rendered.items():
            with self.subTest(values=name):
                deployment = only(objects, "Deployment")["spec"]
                labels = deployment["template"]["metadata"]["labels"]
                for selector in (
                    deployment["selector"]["matchLabels"],
                    only(objects, "Service")["spec"]["selector"],
                ):
                    self.assertLessEqual(selector.items(), labels.items())
                    self.assertNotIn("helm.sh/chart", selector)
                    self.assertNotIn("app.kubernetes.io/version", selector)

    def test_pods_pass_the_restricted_standard(self):
        for name, objects in self.rendered.items():
            with self.subTest(values=name):
                pod = only(objects, "Deployment")["spec"]["template"]["spec"]
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                self.assertEqual(
                    pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}
                )
                self.assertIs(pod["automountServiceAccountToken"], False)
                self.assertNotIn("hostPath", json.dumps(pod["volumes"]))
                for container in pod["containers"]:
                    context = container["securityContext"]
                    self.assertIs(context["allowPrivilegeEscalation"], False)
                    self.assertIs(context["readOnlyRootFilesystem"], True)
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_probes_never_ask_the_backends(self):
        container = only(render({}), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(
            container["livenessProbe"]["httpGet"], {"path": "/-/healthy", "port": "http"}
        )
        self.assertEqual(
            container["readinessProbe"]["httpGet"], {"path": "/-/ready", "port": "http"}
        )

    def test_the_image_is_the_one_of_the_crate(self):
        cargo = (checkout.ROOT / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.+)"$', cargo, re.M).group(1)
        chart = yaml.safe_load((checkout.CHART / "Chart.yaml").read_text())
        self.assertEqual(chart["appVersion"], version)
        container = only(render({}), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.assertTrue(container["image"].endswith(f":{version}"))

    def test_a_digest_wins(self):
        objects = render(values("everything"))
        container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.assertRegex(
            container["image"], r"^registry\.example\.com:5000/lock-exporter/lock_exporter@sha256:"
        )


class Package(unittest.TestCase):
    def test_it_holds_what_the_links_lead_to(self):
        with tempfile.TemporaryDirectory() as folder:
            with quiet():
                package = helm_python.package(str(checkout.CHART), destination=folder)
            given = values("monitoring")
            self.assertEqual(render_files(given, Path(package)), render_files(given))


class Configuration(unittest.TestCase):
    def pod(self, objects: list[dict]) -> dict:
        return only(objects, "Deployment")["spec"]["template"]

    def test_secrets_become_mounted_files(self):
        objects = render(values("secrets"))
        secret = only(objects, "Secret")
        config = yaml.safe_load(secret["stringData"]["lock_exporter.yml"])
        first, second, fleet = (target["restic"] for target in config["targets"])
        folder = "/etc/lock-exporter/secrets"
        self.assertEqual(
            first,
            {
                "repository": "s3:https://s3.example.com/backups/db01",
                "password_file": f"{folder}/restic-db01/password",
                "env_dir": f"{folder}/restic-db01-s3",
            },
        )
        self.assertEqual(second["password_file"], f"{folder}/restic-db01/other")
        self.assertEqual(fleet["env_dir"], f"{folder}/restic-db01-s3")
        self.assertEqual(config["targets"][2]["name"], "prod-fleet")
        pod = self.pod(objects)["spec"]
        mounted = {
            mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]
        }
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for name in ("restic-db01", "restic-db01-s3"):
            volume = volumes[mounted[f"{folder}/{name}"]]
            self.assertEqual(volume["secret"]["secretName"], name)
            # Readable for the group of the pod, and for nobody else.
            self.assertEqual(volume["secret"]["defaultMode"], 0o440)
        self.assertEqual(len(volumes), 3, "a Secret is mounted once, however many targets use it")

    def test_a_change_restarts_the_pods(self):
        sums = set()
        for repository in ("s3:https://a.example.com/b/c", "s3:https://a.example.com/b/d"):
            given = {"config": {"targets": [{"name": "a", "restic": {"repository": repository}}]}}
            annotations = self.pod(render(given))["metadata"]["annotations"]
            sums.add(annotations["checksum/config"])
        self.assertEqual(len(sums), 2)

    def test_an_existing_configuration_is_mounted_under_the_right_name(self):
        objects = render(values("existing-config"))
        self.assertFalse([o for o in objects if o["kind"] in {"ConfigMap", "Secret"}])
        pod = self.pod(objects)
        self.assertNotIn("checksum/config", pod["metadata"]["annotations"])
        self.assertEqual(
            pod["spec"]["volumes"][0]["secret"],
            {
                "secretName": "my-locks",
                "defaultMode": 0o440,
                "items": [{"key": "config.yml", "path": "lock_exporter.yml"}],
            },
        )
        self.assertEqual(pod["spec"]["serviceAccountName"], "backup")

    def test_the_exporter_reads_what_is_mounted(self):
        pod = self.pod(render({}))["spec"]
        arguments = pod["containers"][0]["args"]
        self.assertIn("--config.file=/etc/lock-exporter/config/lock_exporter.yml", arguments)
        self.assertEqual(
            pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/lock-exporter/config"
        )


class Values(unittest.TestCase):
    REFUSED = {
        "an unknown key": {"replicaCount": 2},
        "an unknown key below": {"service": {"prot": 80}},
        "a wrong type": {"replicas": "two"},
        "a wrong port": {"service": {"port": 70000}},
        "a half reference to a Secret": {
            "config": {"targets": [{"name": "a", "restic": {"passwordSecret": {"name": "b"}}}]}
        },
        "a target without a name": {"config": {"targets": [{"restic": {"repository": "/a"}}]}},
        "a severity that nobody routes": {
            "prometheusRule": {"severityOverrides": {"LockConflict": "page"}}
        },
        "a broken digest": {"image": {"digest": "sha256:12"}},
        "two configurations": {"existingConfigMap": "a", "existingConfigSecret": "b"},
        "a scrape longer than its interval": {
            "serviceMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "61s"}
        },
        "a ServiceMonitor without a Service": {
            "serviceMonitor": {"enabled": True},
            "service": {"enabled": False},
        },
    }

    def test_mistakes_are_refused(self):
        for what, given in self.REFUSED.items():
            with self.subTest(what):
                self.assertRaises(helm_python.HelmError, render, given)

    def test_every_value_is_in_the_schema_and_explained(self):
        schema = json.loads((checkout.CHART / "values.schema.json").read_text())
        default = yaml.safe_load((checkout.CHART / "values.yaml").read_text())
        self.assertEqual(set(schema["properties"]) - {"global"}, set(default))
        for key, value in default.items():
            below = schema["properties"][key]
            if below.get("additionalProperties") is False and key != "resources":
                with self.subTest(key):
                    self.assertEqual(set(below["properties"]), set(value))

    def test_every_value_is_used(self):
        templates = "".join(path.read_text() for path in (checkout.CHART / "templates").iterdir())
        default = yaml.safe_load((checkout.CHART / "values.yaml").read_text())
        for key, value in default.items():
            with self.subTest(key):
                self.assertIn(f".Values.{key}", templates)
            if key in {
                "serviceMonitor",
                "prometheusRule",
                "dashboards",
                "service",
                "serviceAccount",
            }:
                # The templates find thresholds by the table of parameters.
                for below in set(value) - set(test_rendering.THRESHOLDS):
                    with self.subTest(key, below=below):
                        self.assertTrue(re.search(rf"\.{below}\b", templates))


class Monitoring(unittest.TestCase):
    def groups(self, given: dict) -> list[dict]:
        return only(render(given), "PrometheusRule")["spec"]["groups"]

    def promtool(self, groups: list[dict]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rules.yml"
            file.write_text(yaml.safe_dump({"groups": groups}))
            done = subprocess.run(
                [checkout.program("promtool"), "check", "rules", "--lint=all", file],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_by_default_the_rules_are_those_of_the_repository(self):
        groups = self.groups(values("monitoring"))
        self.assertEqual(groups, checkout.rule_groups())
        self.promtool(groups)

    def test_the_rules_of_the_chart_pass_their_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rules.yml").write_text(
                yaml.safe_dump({"groups": self.groups(values("monitoring"))})
            )
            tests = (checkout.ALERTS / "rules_test.yml").read_text()
            (Path(folder) / "rules_test.yml").write_text(tests)
            done = subprocess.run(
                [checkout.program("promtool"), "test", "rules", "rules_test.yml"],
                cwd=folder,
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_parameters_reach_the_rules(self):
        groups = self.groups(values("tuned-rules"))
        self.promtool(groups)
        alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
        own = alerts.pop()
        self.assertEqual(own["alert"], "LockOfOurOwn")
        names = [rule["alert"] for rule in alerts]
        expected = set(checkout.rules("alert")) - {"LockContended", "LockOnReplacedFile"}
        self.assertEqual(set(names), expected)
        by_name = {rule["alert"]: rule for rule in alerts}
        for name, rule in by_name.items():
            with self.subTest(name):
                self.assertEqual(rule["labels"]["team"], "backup")
                self.assertEqual(
                    rule["annotations"]["runbook_url"],
                    f"https://wiki.example.com/locks/{name.lower()}",
                )
                self.assertNotRegex(rule["expr"], r"[<>] 900\b")
        self.assertEqual(by_name["LockHeldTooLong"]["labels"]["severity"], "info")
        self.assertIn("< 600", by_name["LockStuckExclusive"]["expr"])
        self.assertIn('job="locks"', by_name["LockExporterAbsent"]["expr"])
        self.assertEqual(by_name["LockExporterAbsent"]["labels"]["job"], "locks")
        shared = {
            rule["labels"]["severity"]: rule["expr"]
            for rule in alerts
            if rule["alert"] == "LockStuckShared"
        }
        self.assertIn('mode="shared"', shared["warning"])
        self.assertIn('mode="unknown"', shared["critical"])

    def test_the_same_parameters_make_the_same_rules_as_without_helm(self):
        given = values("monitoring")
        given["prometheusRule"] |= test_rendering.OTHERS
        with_helm = self.groups(given)
        self.promtool(with_helm)
        without = yaml.safe_load(test_rendering.rendered(test_rendering.OTHERS))["groups"]
        self.assertEqual(with_helm, without)

    def test_its_parameters_are_those_of_the_rules(self):
        chart = yaml.safe_load((checkout.CHART / "values.yaml").read_text())["prometheusRule"]
        for name, row in test_rendering.TABLE.items():
            with self.subTest(name):
                # The chart has a job of its own.
                self.assertEqual(chart[name], "" if name == "jobName" else row["default"])

    def test_an_alert_that_is_not_there_is_refused(self):
        given = values("monitoring")
        given["prometheusRule"]["disabled"] = {"LockStuckExclusiv": True}
        with self.assertRaisesRegex(Exception, "disabled.LockStuckExclusiv: no such alert"):
            render(given)

    def test_the_job_of_the_scrape_is_the_job_of_the_rules(self):
        objects = render(values("monitoring"))
        label = only(objects, "ServiceMonitor")["spec"]["jobLabel"]
        job = only(objects, "Service")["metadata"]["labels"][label]
        down = next(
            rule
            for group in only(objects, "PrometheusRule")["spec"]["groups"]
            for rule in group["rules"]
            if rule.get("alert") == "LockExporterDown"
        )
        self.assertIn(f'job="{job}"', down["expr"])

    def test_the_monitor_selects_the_service_and_its_port(self):
        objects = render(values("monitoring"))
        monitor, service = only(objects, "ServiceMonitor")["spec"], only(objects, "Service")
        self.assertLessEqual(
            monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items()
        )
        self.assertEqual(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"])

    def test_dashboards_arrive_unchanged(self):
        boards = {
            key: text
            for item in render(values("monitoring"))
            if item["kind"] == "ConfigMap"
            and item["metadata"]["labels"].get("grafana_dashboard") == "1"
            for key, text in item["data"].items()
        }
        files = {path.name: path for path in checkout.DASHBOARDS.glob("*.json")}
        self.assertEqual({key.removeprefix("lock-exporter-") for key in boards}, set(files))
        for name, path in files.items():
            text = boards[f"lock-exporter-{name}"]
            self.assertEqual(json.loads(text), json.loads(path.read_text()))
            self.assertLess(len(text), 1 << 20)

    def test_notes_say_what_is_missing(self):
        self.assertIn("nothing to watch", notes({}))
        self.assertIn("restic-db01, restic-db01-s3", notes(values("secrets")))
        self.assertNotIn("WARNING", notes(values("minimal")))
        self.assertIn("A ServiceMonitor was made", notes(values("monitoring")))
