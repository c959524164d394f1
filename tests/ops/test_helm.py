"""The chart: rendered by Helm's own engine, and checked object by object."""

import copy
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import helm_python
import jsonschema
import yaml

import chart
import chart_suites
import checkout
import test_rendering
from chart import only, render, values

# Its tests belong to this part.
from chart_refused import Refused  # noqa: F401

DOCUMENT = checkout.ROOT / "helm" / "document.py"
# How a file in `ci` says that the oldest Kubernetes does not know what it asks for.
NEEDS = re.compile(r"Needs Kubernetes (1\.\d+)")
# A DaemonSet looks at its node, which "restricted" forbids.
NOT_RESTRICTED = {"daemonset", "daemonset-namespaces"}


def documented() -> list:
    """The rows of the table in README.md, by the script that writes it."""
    sys.path.insert(0, str(DOCUMENT.parent))
    try:
        import document
    finally:
        sys.path.pop(0)
    return document.values((checkout.CHART / "values.yaml").read_text())


class Rendering(unittest.TestCase):
    def test_lint(self):
        for version in (chart.KUBERNETES_OLDEST, chart.KUBERNETES_NEWEST):
            with chart.quiet():
                report = helm_python.lint(
                    str(checkout.CHART), strict=True, kube_version=f"v{version}.0"
                )
            self.assertFalse(report["errors"], report)
            # Not even advice.
            self.assertFalse([m for m in report["messages"] if m["severity"]], report)

    def test_defaults_render_without_any_custom_resource(self):
        kinds = sorted(item["kind"] for item in render({}))
        self.assertEqual(kinds, ["ConfigMap", "Deployment", "Pod", "Service", "ServiceAccount"])

    def test_every_object_is_valid_in_the_oldest_and_the_newest_kubernetes(self):
        for name, path in chart.VALUES.items():
            needs = NEEDS.search(path.read_text())
            oldest = needs.group(1) if needs else chart.KUBERNETES_OLDEST
            for version in (oldest, chart.KUBERNETES_NEWEST):
                with self.subTest(name, kubernetes=version):
                    for item in chart.ci(name):
                        if item["apiVersion"] != chart.OPERATOR:
                            chart.check_kubernetes(item, version)

    def test_every_object_of_the_operator_is_valid(self):
        objects = [
            (name, item)
            for name in chart.VALUES
            for item in chart.ci(name)
            if item["apiVersion"] == chart.OPERATOR
        ]
        kinds = {item["kind"] for _, item in objects}
        self.assertEqual(kinds, {"ServiceMonitor", "PodMonitor", "PrometheusRule"})
        for (name, item), told in zip(objects, chart.check_operator([i for _, i in objects])):
            with self.subTest(name, kind=item["kind"]):
                self.assertEqual(told, "")

    def test_the_operators_types_find_mistakes(self):
        objects = chart.ci("monitoring")
        wrong = []
        for path, value in (("exprr", "up"), ("for", "30")):
            wrong.append(only(copy.deepcopy(objects), "PrometheusRule"))
            wrong[-1]["spec"]["groups"][1]["rules"][0][path] = value
        wrong.append(only(copy.deepcopy(objects), "ServiceMonitor"))
        wrong[-1]["spec"]["endpoints"][0]["relabelings"][0]["regexp"] = "a"
        for told, expected in zip(
            chart.check_operator(wrong), ("exprr is unknown", "for must match", "regexp is unknown")
        ):
            self.assertIn(expected, told)

    def test_objects_carry_the_labels_and_the_namespace(self):
        for name in chart.VALUES:
            with self.subTest(values=name):
                for item in chart.ci(name):
                    meta = item["metadata"]
                    if meta["name"].endswith(("-more", "-extra")):
                        continue
                    self.assertIn(meta["namespace"], {"prod", "monitoring", "grafana"})
                    self.assertEqual(meta["labels"]["app.kubernetes.io/instance"], "demo")
                    if name == "names" and item["kind"] != "Pod":
                        self.assertEqual(meta["labels"]["team"], "backup")
                        self.assertEqual(meta["labels"]["release"], "demo")

    def test_selectors_find_the_pods_and_nothing_else(self):
        for name in chart.VALUES:
            with self.subTest(values=name):
                objects = chart.ci(name)
                spec = chart.workload(objects)["spec"]
                selectors = [spec["selector"]["matchLabels"]]
                for item in objects:
                    if item["kind"] == "Service":
                        selectors.append(item["spec"]["selector"])
                    if item["kind"] == "NetworkPolicy":
                        selectors.append(item["spec"]["podSelector"]["matchLabels"])
                    if item["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
                        selectors.append(item["spec"]["selector"]["matchLabels"])
                others = [item["metadata"]["labels"] for item in objects if item["kind"] == "Pod"]
                for selector in selectors:
                    labels = spec["template"]["metadata"]["labels"]
                    self.assertLessEqual(selector.items(), labels.items())
                    self.assertEqual(selector, selectors[0])
                    # These change with the chart, and a selector never may.
                    self.assertNotIn("helm.sh/chart", selector)
                    self.assertNotIn("app.kubernetes.io/version", selector)
                    for other in others:
                        self.assertFalse(selector.items() <= other.items(), "finds the test's pod")

    def test_pods_pass_the_restricted_standard(self):
        for name in set(chart.VALUES) - NOT_RESTRICTED:
            with self.subTest(values=name):
                objects = chart.ci(name)
                specs = [chart.pod(objects)["spec"]]
                specs += [item["spec"] for item in objects if item["kind"] == "Pod"]
                for spec in specs:
                    self.assertEqual(chart.unrestricted(spec), [])
                    self.assertIs(spec["automountServiceAccountToken"], False)
                    for container in spec["containers"]:
                        if container["name"] in {"exporter", "curl"}:
                            own = container["securityContext"]
                            self.assertIs(own["readOnlyRootFilesystem"], True)

    def test_a_daemonset_has_two_capabilities_more_and_says_so(self):
        spec = chart.pod(chart.ci("daemonset"))["spec"]
        told = chart.unrestricted(spec)
        self.assertEqual(
            set(told),
            {
                "exporter: capabilities.add",
                "exporter: runAsNonRoot",
                "exporter: runAsUser",
                "volume host-proc of kind {'hostPath'}",
                "volume host-root of kind {'hostPath'}",
            },
        )
        mounts = spec["containers"][0]["volumeMounts"]
        for mount in mounts:
            if mount["name"].startswith("host-"):
                self.assertIs(mount["readOnly"], True)
                self.assertEqual(mount["mountPropagation"], "HostToContainer")
        page = (checkout.CHART / "README.md").read_text()
        self.assertIn('not pass the Pod Security Standard "restricted"', page)

    def test_suites(self):
        files = sorted((checkout.CHART / "unittests").glob("*_test.yaml"))
        self.assertGreaterEqual(len(files), 4)
        for file in files:
            for case in chart_suites.run(file):
                with self.subTest(case.suite, it=case.name):
                    self.assertEqual(case.problems, [])

    def test_two_releases_share_a_namespace(self):
        given = values("monitoring") | {"networkPolicy": {"enabled": True}}
        for first, second in (("a", "b"), ("x" * 53, "x" * 52 + "y")):
            for kind in ("Deployment", "StatefulSet"):
                one, other = (render(given | {"kind": kind}, release=r) for r in (first, second))
                names = [{(o["kind"], o["metadata"]["name"]) for o in r} for r in (one, other)]
                self.assertEqual(names[0] & names[1], set())
                selector = chart.workload(one)["spec"]["selector"]["matchLabels"]
                labels = chart.pod(other)["metadata"]["labels"]
                self.assertFalse(selector.items() <= labels.items())

    def test_long_names_stay_names(self):
        for kind, longest in (("Deployment", 63), ("StatefulSet", 52), ("DaemonSet", 63)):
            given = values("monitoring") | {"kind": kind, "nameOverride": "n" * 63}
            objects = render(given, release="r" * 53)
            names = {(item["kind"], item["metadata"]["name"]) for item in objects}
            self.assertEqual(len(names), len(objects))
            for item in objects:
                self.assertRegex(item["metadata"]["name"], r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
                for value in item["metadata"]["labels"].values():
                    self.assertLessEqual(len(value), 63)
            self.assertLessEqual(len(chart.workload(objects)["metadata"]["name"]), longest)


class Package(unittest.TestCase):
    def test_it_holds_what_the_links_lead_to_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            with chart.quiet():
                package = helm_python.package(str(checkout.CHART), destination=folder)
            given = values("monitoring")
            packed = chart.render_files(given, Path(package))
            self.assertEqual(packed, chart.render_files(given))
            listed = subprocess.run(
                ["tar", "-tzf", package], capture_output=True, text=True, check=True
            ).stdout
            self.assertNotRegex(listed, r"\.py\b|/ci/|/unittests/")

    def test_the_next_release_changes_nothing_that_kubernetes_keeps(self):
        """What an upgrade of the chart alone may not touch, or the API server refuses it."""
        given = values("shards") | {"persistence": {"enabled": True}}
        frozen = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
        kept = []
        for version in ("0.2.0", "0.9.1"):
            with tempfile.TemporaryDirectory() as folder, chart.quiet():
                package = helm_python.package(
                    str(checkout.CHART), destination=folder, version=version, app_version=version
                )
                objects = render(given, path=Path(package))
            labels = chart.workload(objects)["metadata"]["labels"]
            self.assertEqual(labels["app.kubernetes.io/version"], version)
            spec = chart.workload(objects)["spec"]
            service = only(objects, "Service")["spec"]
            kept.append(({key: spec[key] for key in frozen}, service["clusterIP"]))
        self.assertEqual(kept[0], kept[1])

    def test_the_chart_says_what_it_is(self):
        about = yaml.safe_load((checkout.CHART / "Chart.yaml").read_text())
        cargo = (checkout.ROOT / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.+)"$', cargo, re.M).group(1)
        self.assertEqual(about["appVersion"], version)
        self.assertEqual(about["apiVersion"], "v2")
        self.assertRegex(about["version"], r"^\d+\.\d+\.\d+$")
        self.assertIn(chart.KUBERNETES_OLDEST, about["kubeVersion"])
        for key in ("description", "home", "sources", "icon", "keywords", "maintainers"):
            self.assertTrue(about[key], key)
        notes = about["annotations"]
        for key in ("images", "changes", "links"):
            self.assertTrue(yaml.safe_load(notes[f"artifacthub.io/{key}"]), key)
        # What Artifact Hub takes: artifacthub.io/docs/topics/annotations/helm.
        kinds = {item["kind"] for item in yaml.safe_load(notes["artifacthub.io/changes"])}
        self.assertLessEqual(
            kinds, {"added", "changed", "deprecated", "removed", "fixed", "security"}
        )
        self.assertRegex(notes["artifacthub.io/license"], r"^[-A-Za-z0-9.+]+$", "one of SPDX")
        self.assertEqual(notes["artifacthub.io/category"], "monitoring-logging")
        images = {item["image"] for item in yaml.safe_load(notes["artifacthub.io/images"])}
        objects = render({})
        (curl,) = only(objects, "Pod")["spec"]["containers"]
        self.assertEqual(images, {chart.exporter(objects)["image"], curl["image"]})
        self.assertTrue(list((checkout.ROOT / "docs").glob(Path(about["icon"]).name)))


class Configuration(unittest.TestCase):
    def test_secrets_become_mounted_files(self):
        objects = chart.ci("secrets")
        config = yaml.safe_load(only(objects, "Secret")["stringData"]["lock_exporter.yml"])
        first, second, archive = (target["restic"] for target in config["targets"])
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
        self.assertEqual(archive["env_dir"], f"{folder}/restic-db01-s3")
        self.assertEqual(config["targets"][2]["name"], "prod-archive")
        spec = chart.pod(objects)["spec"]
        mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for name in ("restic-db01", "restic-db01-s3"):
            volume = volumes[mounts[f"{folder}/{name}"]]
            self.assertEqual(volume["secret"]["secretName"], name)

    def test_a_change_makes_new_pods_only_where_the_exporter_does_not_look_itself(self):
        changes = (
            {"config": {"targets": [{"name": "a", "restic": {"repository": "/b"}}]}},
            {"webConfig": {"config": {"http_server_config": {"headers": {}}}}},
            {"ssh": {"knownHosts": "a ssh-ed25519 AAAA"}},
        )
        for looks in (True, False):
            pods = [
                chart.pod(render(change | {"configReloader": {"enabled": looks}}))["metadata"]
                for change in ({}, *changes)
            ]
            sums = {json.dumps(meta["annotations"]) for meta in pods}
            self.assertEqual(len(sums), 1 if looks else 1 + len(changes))

    def test_an_existing_configuration_is_mounted_under_the_right_name(self):
        objects = chart.ci("existing-config")
        self.assertFalse([o for o in objects if o["kind"] in {"ConfigMap", "Secret"}])
        spec = chart.pod(objects)["spec"]
        self.assertEqual(
            spec["volumes"][0]["secret"],
            {
                "secretName": "my-locks",
                "defaultMode": 0o440,
                "items": [{"key": "config.yml", "path": "lock_exporter.yml"}],
            },
        )
        self.assertEqual(spec["serviceAccountName"], "backup")

    def test_the_values_of_the_pages_mount_what_their_targets_read(self):
        for page in ("helm/lock-exporter/README.md", "docs/recipes/kubernetes.md"):
            text = (checkout.ROOT / page).read_text()
            (block,) = re.findall(r"^```yaml\n(# my-values.*?)^```$", text, re.M | re.S)
            objects = render(yaml.safe_load(block))
            config = yaml.safe_load(
                only(objects, "ConfigMap", "lock-exporter")["data"]["lock_exporter.yml"]
            )
            mounts = {m["mountPath"] for m in chart.exporter(objects)["volumeMounts"]}
            read = set()
            for target in config["targets"]:
                read.add(target["restic"]["env_dir"])
                if "password_file" in target["restic"]:
                    read.add(str(Path(target["restic"]["password_file"]).parent))
            with self.subTest(page):
                self.assertGreaterEqual(len(read), 2)
                self.assertLessEqual(read, mounts)

    def test_the_image(self):
        image = chart.exporter(chart.ci("names"))["image"]
        self.assertRegex(image, r"^registry\.example\.com:5000/backup/lock_exporter@sha256:0123")
        image = chart.exporter(render({"image": {"registry": "r:5", "tag": "v1"}}))["image"]
        self.assertEqual(image, "r:5/lock-exporter/lock_exporter:v1")
        pulled = chart.pod(chart.ci("names"))["spec"]["imagePullSecrets"]
        self.assertEqual(pulled, [{"name": "house"}, {"name": "registry"}])


class Values(unittest.TestCase):
    def test_every_value_has_an_example(self):
        used = [values(name) for name in chart.VALUES]
        for row in documented():
            with self.subTest(".".join(row.path)):
                self.assertTrue(any(self.has(given, row.path) for given in used))

    def has(self, given: dict, path: tuple[str, ...]) -> bool:
        for name in path:
            if not isinstance(given, dict) or name not in given:
                return False
            given = given[name]
        return True

    def test_readme_and_schema_say_what_the_comments_say(self):
        done = subprocess.run(
            [sys.executable, DOCUMENT, "--check"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_value_is_in_the_schema_and_nothing_else(self):
        schema = chart.schema()
        jsonschema.Draft7Validator.check_schema(schema)
        default = yaml.safe_load((checkout.CHART / "values.yaml").read_text())
        self.compare(schema, default, ())

    def compare(self, schema: dict, default: dict, path: tuple[str, ...]) -> None:
        # Charts above this one have values of their own below `global`; the configuration's
        # keys are the program's.
        if schema.get("additionalProperties") is False and path[:1] != ("config",):
            with self.subTest(".".join(path)):
                if path != ("resources",) and path[-1:] not in {("strategy",), ("updateStrategy",)}:
                    self.assertEqual(set(schema["properties"]), set(default))
        for key, below in schema.get("properties", {}).items():
            if isinstance(default.get(key), dict):
                self.compare(below, default[key], (*path, key))


class Monitoring(unittest.TestCase):
    def groups(self, name: str) -> list[dict]:
        return only(chart.ci(name), "PrometheusRule")["spec"]["groups"]

    def promtool(self, groups: list[dict], *files: Path) -> None:
        """promtool's checks of the rules, and what `files` test about them."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
            for file in files:
                (Path(folder) / file.name).write_text(file.read_text())
            for arguments in (
                ["check", "rules", "--lint=all", "rules.yml"],
                *(["test", "rules", file.name] for file in files),
            ):
                done = subprocess.run(
                    [checkout.program("promtool"), *arguments],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_by_default_the_rules_are_those_of_the_repository_and_pass_their_tests(self):
        groups = self.groups("monitoring")
        self.assertEqual(groups, checkout.rule_groups())
        self.promtool(groups, checkout.ALERTS / "rules_test.yml")

    def test_parameters_reach_the_rules(self):
        groups = self.groups("tuned-rules")
        self.promtool(groups)
        own = groups.pop()["rules"]
        self.assertEqual([rule["alert"] for rule in own], ["LockOfOurOwn"])
        self.assertEqual(own[0]["annotations"]["description"], "{{ $labels.target }} fails.")
        given = values("tuned-rules")["prometheusRule"]
        without = yaml.safe_load(
            test_rendering.rendered({k: v for k, v in given.items() if k in test_rendering.TABLE})
        )
        self.assertEqual(groups, without["groups"])

    def test_the_same_parameters_make_the_same_rules_as_without_helm(self):
        given = values("monitoring")
        given["prometheusRule"] |= test_rendering.OTHERS
        with_helm = only(render(given), "PrometheusRule")["spec"]["groups"]
        self.promtool(with_helm)
        without = yaml.safe_load(test_rendering.rendered(test_rendering.OTHERS))["groups"]
        self.assertEqual(with_helm, without)

    def test_its_parameters_are_those_of_the_rules(self):
        default = yaml.safe_load((checkout.CHART / "values.yaml").read_text())["prometheusRule"]
        comments = {row.path: row.text for row in documented()}
        for name, row in test_rendering.TABLE.items():
            with self.subTest(name):
                # The chart has a job of its own.
                if name == "jobName":
                    self.assertEqual(default[name], "")
                else:
                    self.assertEqual(default[name], row["default"])
                    self.assertEqual(comments["prometheusRule", name], row["meaning"])

    def test_the_job_of_the_scrape_is_the_job_of_the_rules(self):
        given = values("monitoring") | {"nameOverride": "locks"}
        objects = render(given)
        label = only(objects, "ServiceMonitor")["spec"]["jobLabel"]
        job = only(objects, "Service")["metadata"]["labels"][label]
        self.assertEqual(job, "locks")
        rules = {
            rule.get("alert"): rule
            for group in only(objects, "PrometheusRule")["spec"]["groups"]
            for rule in group["rules"]
        }
        for name in ("LockExporterDown", "LockExporterAbsent"):
            self.assertIn(f'job="{job}"', rules[name]["expr"])
        self.assertEqual(rules["LockExporterAbsent"]["labels"]["job"], job)

    def test_shards_that_are_missing_or_disagree_are_told(self):
        names = {rule.get("alert") for group in self.groups("shards") for rule in group["rules"]}
        self.assertLessEqual({"LockExporterShardsMissing", "LockExporterShardsMismatch"}, names)

    def test_the_monitor_selects_the_service_and_its_port(self):
        for name in ("monitoring", "tls", "shards", "daemonset"):
            objects = chart.ci(name)
            monitor, service = only(objects, "ServiceMonitor")["spec"], only(objects, "Service")
            self.assertLessEqual(
                monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items()
            )
            self.assertEqual(
                monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]
            )

    def test_dashboards_arrive_unchanged(self):
        boards = {
            key: text
            for item in chart.ci("monitoring")
            if item["kind"] == "ConfigMap"
            and item["metadata"]["labels"].get("grafana_dashboard") == "1"
            for key, text in item["data"].items()
        }
        files = {path.name: path for path in checkout.DASHBOARDS.glob("*.json")}
        self.assertEqual({key.removeprefix("lock-exporter-") for key in boards}, set(files))
        for name, path in files.items():
            text = boards[f"lock-exporter-{name}"]
            # With the double braces of the legends; so they pass whatever tests the files pass.
            self.assertEqual(text.strip(), path.read_text().strip())
            self.assertLess(len(text), 1 << 20)
        self.assertIn("{{target}}", "".join(boards.values()))

    def test_notes_say_what_is_missing(self):
        for given, expected in (
            ({}, "nothing to watch"),
            (values("secrets"), "get secrets restic-db01 restic-db01-s3\n"),
            (values("ssh"), "get secrets backup-ssh-key restic-nas\n"),
            (values("monitoring"), "A ServiceMonitor was made"),
            (values("pod-monitor"), "A PodMonitor was made"),
            (values("tls"), "curl -sk https://127.0.0.1:10130/metrics"),
            (
                values("daemonset") | {"kind": "Deployment", "collectors": {}},
                "lock files of nodes are seen by",
            ),
            (values("minimal") | {"kind": "DaemonSet"}, "each node scans the repositories"),
            (values("ssh") | {"ssh": {}}, "ssh refuses a server whose key it does not know"),
        ):
            self.assertIn(expected, chart.notes(given))
        for name in chart.VALUES:
            with self.subTest(name):
                if not name.startswith("existing"):
                    self.assertNotIn("WARNING", chart.notes(values(name)))
