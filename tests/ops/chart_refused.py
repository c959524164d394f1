"""Values that the chart refuses: a mistake is told when it is rendered, in words that name it."""

import copy
import json
import unittest
from collections.abc import Iterator

import helm_python

import chart
import test_rendering
from chart import render, values


class Refused(unittest.TestCase):
    MANY = {"sharding": {"enabled": True}, "replicas": 2}

    def refused(self, given: dict, *words: str, release: str = "demo") -> None:
        with self.assertRaises(helm_python.HelmError) as raised:
            render(given, release=release)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def target(self, **restic) -> dict:
        return {"config": {"targets": [{"name": "a", "restic": {"repository": "/a"} | restic}]}}

    def test_what_the_schema_refuses(self):
        for given, *words in (
            ({"replicaCount": 2}, "replicaCount", "not allowed"),
            ({"service": {"prot": 80}}, "/service", "prot"),
            ({"replicas": "two"}, "/replicas", "want integer"),
            ({"service": {"port": 70000}}, "/service/port"),
            ({"kind": "Job"}, "/kind", "DaemonSet"),
            ({"image": {"digest": "sha256:12"}}, "/image/digest"),
            ({"image": {"tag": "a b"}}, "/image/tag"),
            ({"nameOverride": "n" * 300}, "/nameOverride", "300"),
            ({"fullnameOverride": "N"}, "/fullnameOverride"),
            ({"commonLabels": {"a": "x" * 64}}, "/commonLabels/a"),
            ({"commonLabels": {"a b": "c"}}, "'a b' does not match"),
            ({"sharding": {"enabled": True, "shards": 1}}, "/sharding/shards"),
            ({"terminationGracePeriodSeconds": 5}, "/terminationGracePeriodSeconds"),
            ({"extraSecrets": [{"mountPath": "/a"}]}, "/extraSecrets/0", "name"),
            ({"serviceMonitor": {"interval": "soon"}}, "/serviceMonitor/interval"),
            ({"serviceMonitor": {"interval": "0s"}}, "/serviceMonitor/interval"),
            ({"prometheusRule": {"jobName": 'a"b'}}, "/prometheusRule/jobName"),
            ({"prometheusRule": {"jobName": "{{ $value }}"}}, "/prometheusRule/jobName"),
            ({"prometheusRule": {"runbookUrlPattern": "https://a"}}, "/runbookUrlPattern"),
            ({"prometheusRule": {"runbookUrlPattern": "https://a/%s{{"}}, "/runbookUrlPattern"),
            ({"prometheusRule": {"droppedLabels": ["target"]}}, "/prometheusRule/droppedLabels"),
            ({"prometheusRule": {"forOverrides": {"LockOnIt": "soon"}}}, "/forOverrides"),
            ({"prometheusRule": {"forOverrides": {"LockConflict": "30"}}}, "/forOverrides"),
            ({"prometheusRule": {"forOverrides": {"LockConflict": "300y"}}}, "/forOverrides"),
            ({"prometheusRule": {"severityOverrides": {"LockConflict": "page"}}}, "critical"),
            (self.target(passwordSecret={"name": "b"}), "/passwordSecret", "key"),
            (self.target(passwordSecret={"name": "", "key": "a"}), "/passwordSecret/name"),
            (self.target(envFromSecret=""), "/envFromSecret"),
            (self.target(pasword_file="/a"), "pasword_file"),
            ({"config": {"target": []}}, "/config", "target"),
            ({"config": {"targets": [{"restic": {"repository": "/a"}}]}}, "targets/0", "name"),
            ({"podDisruptionBudget": {"minAvailable": "half"}}, "/minAvailable"),
            ({"global": {"imageRegistry": "a: b"}}, "/global/imageRegistry"),
            ({"test": {"image": {"tag": "a: b"}}}, "/test/image/tag"),
            ({"podAnnotations": {"a b": "c"}}, "'a b' does not match"),
            ({"podAnnotations": {"a": 1}}, "/podAnnotations/a", "want string"),
            ({"affinity": {"nodeAfinity": {}}}, "nodeAfinity", "nodeAffinity"),
            ({"livenessProbe": {"httpget": {}}}, "httpget", "httpGet"),
            ({"securityContext": {"priviledged": True}}, "priviledged"),
            ({"extraContainers": [{"image": "a"}]}, "/extraContainers/0", "name"),
            ({"extraVolumes": [{"name": "A_b"}]}, "/extraVolumes/0/name"),
            ({"extraEnv": [{"name": "A", "value": 1}]}, "/extraEnv/0/value", "want string"),
            ({"extraManifests": [{"kind": "ConfigMap"}]}, "apiVersion", "metadata"),
            ({"replicas": 10**20}, "/replicas", "1,000"),
        ):
            with self.subTest(str(given)[:80]):
                self.refused(given, *words)

    def test_thresholds_that_always_or_never_hold(self):
        for key in test_rendering.THRESHOLDS:
            for value in (0, -1, "900"):
                with self.subTest(key, value=value):
                    self.refused({"prometheusRule": {key: value}}, f"/prometheusRule/{key}")

    def test_what_contradicts_itself(self):
        two = [{"name": "a", "restic": {"repository": f"/{n}"}} for n in (1, 2)]
        monitor = {"enabled": True}
        for given, *words in (
            ({"existingConfigMap": "a", "existingConfigSecret": "b"}, "existingConfigMap and"),
            ({"existingConfigMap": "a"} | self.target(), "config.targets and existingConfigMap"),
            ({"existingConfigMap": "a", "configAsSecret": True}, "configAsSecret is about config"),
            (self.MANY, "needs kind: StatefulSet", "replicas and sharding.enabled"),
            ({"kind": "DaemonSet", "replicas": 2}, "replicas has no meaning"),
            ({"kind": "DaemonSet", "persistence": {"enabled": True}}, "no claim belongs"),
            ({"kind": "StatefulSet", "service": {"enabled": False}}, "needs service.enabled"),
            ({"kind": "StatefulSet", "service": {"type": "NodePort"}}, "headless Service"),
            ({"persistence": {"enabled": True}}, "type: Recreate"),
            (values("persistence") | {"replicas": 2}, "needs kind: StatefulSet"),
            ({"podDisruptionBudget": {"enabled": True}}, "exactly one of minAvailable"),
            (
                {"podDisruptionBudget": {"enabled": True, "minAvailable": 1, "maxUnavailable": 1}},
                "exactly one of minAvailable",
            ),
            (
                {"podDisruptionBudget": {"enabled": True, "minAvailable": 1}},
                "is 1 of 1 pods: no node could be drained",
            ),
            (
                {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "0%"}},
                "no node could be drained",
            ),
            ({"collectors": {"process": True}}, "collectors.process needs kind: DaemonSet"),
            (
                {
                    "kind": "DaemonSet",
                    "daemonSet": {"hostProc": ""},
                    "collectors": {"process": True},
                },
                "collectors.process needs kind: DaemonSet with daemonSet.hostProc",
            ),
            (
                {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}},
                "no backend can be reached",
            ),
            ({"config": {"targets": two}}, "two targets are named a"),
            ({"config": {"targets": [{"name": "a"}]}}, "config.targets[0] (a)", "restic or file"),
            (self.target(discover="/b"), "restic.repository and restic.discover"),
            ({"config": {"targets": [two[0] | {"name": "n" * 300}]}}, "at most 128 bytes"),
            (
                self.target(passwordSecret={"name": "b", "key": "c"}, password_file="/d"),
                "restic.passwordSecret and restic.password_file",
            ),
            (self.target(envFromSecret="b", env_dir="/d"), "restic.envFromSecret and"),
            ({"serviceMonitor": monitor, "podMonitor": monitor}, "scraped twice"),
            ({"serviceMonitor": monitor, "service": {"enabled": False}}, "needs service.enabled"),
            (
                {"serviceMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "61s"}},
                "serviceMonitor.scrapeTimeout (61s) is longer than the interval (1m)",
            ),
            (
                {"podMonitor": {"enabled": True, "interval": "1m30s", "scrapeTimeout": "91000ms"}},
                "podMonitor.scrapeTimeout",
            ),
            ({"serviceMonitor": {"enabled": True, "scheme": "https"}}, "speaks http"),
            ({"webConfig": {"config": {"a": 1}, "existingSecret": "b"}}, "one web configuration"),
            ({"webConfig": {"existingSecret": "b"}}, "needs webConfig.scheme"),
            ({"webConfig": {"scheme": "https"}}, "https without a web configuration"),
            ({"webConfig": {"tlsSecret": "b", "scheme": "http"}}, "the web configuration has TLS"),
            ({"webConfig": {"tlsSecret": "b", "probePort": 10130}}, "are both 10130"),
            (
                {"webConfig": {"tlsSecret": "b", "config": {"tls_server_config": {"cert": "c"}}}},
                "webConfig.tlsSecret and",
            ),
            ({"prometheusRule": {"disabled": {"LockStuck": True}}}, "disabled.LockStuck: no such"),
            ({"prometheusRule": {"forOverrides": {"LockStuck": "1m"}}}, "LockStuckExclusive"),
            ({"prometheusRule": {"extraAlertLabels": {"job": "a"}}}, "the rules set this label"),
            ({"prometheusRule": {"extraAlertLabels": {"a": "{{ $value }}"}}}, "is no template"),
            ({"podLabels": {"app.kubernetes.io/name": "b"}}, "podLabels may not set"),
            ({"extraVolumeMounts": [{"name": "b", "mountPath": "/c"}]}, "names the volume b"),
            ({"extraVolumes": [{"name": "state", "emptyDir": {}}]}, "two volumes are named state"),
            ({"hostUsers": False, "hostNetwork": True}, "hostUsers: false does not go with"),
            ({"dnsPolicy": "None"}, "needs dnsConfig.nameservers"),
            (
                {"service": {"ipDualStack": {"enabled": True, "ipFamilyPolicy": "SingleStack"}}},
                "there are two ipFamilies",
            ),
            (
                {
                    "kind": "DaemonSet",
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
                },
                "rollingUpdate.partition is known to kind: StatefulSet only",
            ),
            (
                {"podDisruptionBudget": {"enabled": True, "minAvailable": "100%"}},
                "is 100%: no node could be drained",
            ),
            ({"extraContainers": [{"name": "exporter"}]}, "two containers are named exporter"),
            ({"extraEnv": [{"name": "LOCK_EXPORTER_LOG_LEVEL"}]}, "which is set already"),
            ({"extraArgs": ["--state.dir=/a"]}, "--state.dir, which the chart gives already"),
            ({"extraManifests": ["only words"]}, "extraManifests[0] is no object"),
            ({"extraManifests": ["{{ .Values.hostName }}: b"]}, "extraManifests[0] needs"),
            (
                {"hostName": "it's"}
                | {"config": {"targets": [two[0] | {"name": "{{ .Values.hostName }}"}]}},
                "config is no YAML once its templates are filled in",
            ),
            (
                {"extraSecrets": [{"name": "b", "mountPath": "/etc/lock-exporter/config/"}]},
                "two volumes are mounted at /etc/lock-exporter/config",
            ),
        ):
            with self.subTest(str(given)[:80]):
                self.refused(given, *words)

    def test_names_that_kubernetes_would_refuse(self):
        self.refused({}, "has 300 characters; Helm takes at most 53", release="r" * 300)
        self.refused({}, "begins with a letter", release="1st")

    def test_everything_wrong_is_told_at_once(self):
        self.refused(
            self.MANY | {"existingConfigMap": "a", "configAsSecret": True},
            "needs kind: StatefulSet",
            "replicas and sharding.enabled",
            "configAsSecret is about config",
        )

    def test_a_key_that_is_null_is_refused_or_means_nothing(self):
        """Helm takes such a key away, with its default: no template may stumble over that."""
        everything = {
            "kind": "StatefulSet",
            "persistence": {"enabled": True},
            "podDisruptionBudget": {"enabled": True, "maxUnavailable": 1},
            "networkPolicy": {"enabled": True},
            "resources": {"limits": {"cpu": 1}},
            **{k: {"enabled": True} for k in ("serviceMonitor", "prometheusRule")},
        }
        refused, rendered = 0, 0
        seen = set()
        for path in paths(chart.schema()):
            given = copy.deepcopy(everything) | {"config": {"targets": []}}
            node = given
            for name in path[:-1]:
                node = node.setdefault(name, {})
            node[path[-1]] = None
            with self.subTest(".".join(path)):
                try:
                    objects = render(given)
                except helm_python.HelmError as error:
                    self.assertRegex(str(error), f"(missing propert.*'{path[-1]}')|\n- ")
                    refused += 1
                    continue
                rendered += 1
                for item in objects:
                    text = json.dumps(item)
                    if item["apiVersion"] != chart.OPERATOR and text not in seen:
                        chart.check_kubernetes(item, chart.KUBERNETES_NEWEST)
                    seen.add(text)
        self.assertGreater(refused, 50)
        self.assertGreater(rendered, 50)

    def test_what_is_passed_on_knows_the_keys_of_kubernetes(self):
        """Of the newest one, so that no key is refused that a cluster knows."""
        schema = chart.schema()
        of = {
            "podSecurityContext": "podsecuritycontext-v1",
            "securityContext": "securitycontext-v1",
            "livenessProbe": "probe-v1",
            "readinessProbe": "probe-v1",
            "startupProbe": "probe-v1",
            "affinity": "affinity-v1",
            "networkPolicy.ingress.from": "networkpolicypeer-networking-v1",
            "networkPolicy.egress.to": "networkpolicypeer-networking-v1",
            "networkPolicy.egress.ports": "networkpolicyport-networking-v1",
            "networkPolicy.extraIngress": "networkpolicyingressrule-networking-v1",
            "networkPolicy.extraEgress": "networkpolicyegressrule-networking-v1",
            "daemonSet.podSecurityContext": "podsecuritycontext-v1",
            "daemonSet.securityContext": "securitycontext-v1",
            "dnsConfig": "poddnsconfig-v1",
            "tolerations": "toleration-v1",
            "topologySpreadConstraints": "topologyspreadconstraint-v1",
            "hostAliases": "hostalias-v1",
            "extraEnv": "envvar-v1",
            "extraEnvFrom": "envfromsource-v1",
            "extraVolumes": "volume-v1",
            "extraVolumeMounts": "volumemount-v1",
            "extraContainers": "container-v1",
            "extraInitContainers": "container-v1",
        }
        for key, kind in of.items():
            node = schema
            for name in key.split("."):
                node = node["properties"][name]
            node = node.get("items", node)
            with self.subTest(key):
                self.assertEqual(node["propertyNames"]["enum"], chart.kubernetes_keys(kind))


def paths(schema: dict, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every value that the chart knows."""
    for name, below in schema.get("properties", {}).items():
        yield (*above, name)
        yield from paths(below, (*above, name))
