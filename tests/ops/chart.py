"""The chart, rendered by Helm's own engine, and the checks that every object has to pass."""

import contextlib
import copy
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import helm_python
import kubernetes_validate
import yaml

import checkout

# The oldest one the chart says it supports, and the newest that schemas are at hand for.
KUBERNETES_OLDEST, KUBERNETES_NEWEST = "1.25", "1.37"
OPERATOR = "monitoring.coreos.com/v1"
RELEASE, NAMESPACE = "demo", "prod"
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet"}
VALUES = {
    path.name.removesuffix("-values.yaml"): path
    for path in sorted((checkout.CHART / "ci").glob("*-values.yaml"))
}


def values(name: str) -> dict:
    """The values of one of the files in `ci`."""
    return yaml.safe_load(VALUES[name].read_text())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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


def render_files(
    given: dict,
    path: Path = checkout.CHART,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
) -> dict[str, str]:
    """What each template gives, by its name below `templates`."""
    with quiet(), helm_python.Chart.load(str(path)) as chart:
        rendered = chart.render(given, name=release, namespace=namespace)
    return {name.split("/templates/")[-1]: text for name, text in rendered.items()}


def documents(text: str) -> list[dict]:
    # libyaml's loader, where PyYAML has it, is ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def render(given: dict, **where) -> list[dict]:
    """All objects, as the API server would get them."""
    return [
        document
        for name, text in render_files(given, **where).items()
        if name != "NOTES.txt"
        for document in documents(text)
    ]


@functools.cache
def _ci(name: str) -> list[dict]:
    return render(values(name))


def ci(name: str) -> list[dict]:
    """The objects of one of the files in `ci`."""
    return copy.deepcopy(_ci(name))


def schema() -> dict:
    return json.loads((checkout.CHART / "values.schema.json").read_text())


def notes(given: dict) -> str:
    return render_files(given)["NOTES.txt"]


def only(objects: list[dict], kind: str, name: str = "") -> dict:
    """The object of a kind, whose name ends in `name` when there are several."""
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name)]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def workload(objects: list[dict]) -> dict:
    (found,) = [item for item in objects if item["kind"] in WORKLOADS]
    return found


def pod(objects: list[dict]) -> dict:
    """The exporter's pod template."""
    return workload(objects)["spec"]["template"]


def exporter(objects: list[dict]) -> dict:
    """The exporter's container."""
    return pod(objects)["spec"]["containers"][0]


def check_kubernetes(item: dict, version: str) -> None:
    """Raises when Kubernetes' own schema does not know the object."""
    kubernetes_validate.validate(item, version, strict=True)


def kubernetes_keys(kind: str) -> list[str]:
    """The keys of a type of the newest Kubernetes, as `podsecuritycontext-v1`."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    file = folder / f"v{KUBERNETES_NEWEST}.0-local-strict" / f"{kind}.json"
    return sorted(json.loads(file.read_text())["properties"])


def check_operator(objects: list[dict]) -> list[str]:
    """What is wrong with each object of the Prometheus operator, "" if nothing."""
    folder = os.environ.get("PROMETHEUS_OPERATOR_TYPES")
    assert folder, "PROMETHEUS_OPERATOR_TYPES is not set: tests/run installs what the tests need"
    done = subprocess.run(
        [checkout.program("node"), str(Path(__file__).parent / "operator.mjs"), folder],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# What a container may add to its capabilities, and which kinds of volumes a pod may have:
# kubernetes.io/docs/concepts/security/pod-security-standards, "Restricted".
RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def unrestricted(spec: dict) -> list[str]:
    """Why a pod does not pass the Pod Security Standard "restricted"; empty if it does."""
    found = [key for key in ("hostPID", "hostIPC", "hostNetwork") if spec.get(key)]
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= RESTRICTED_VOLUMES:
            found.append(f"volume {volume['name']} of kind {kinds}")
    whole = spec.get("securityContext") or {}
    for container in spec.get("initContainers", []) + spec["containers"]:
        own = container.get("securityContext") or {}
        merged = whole | own
        capabilities = own.get("capabilities", {})
        wrong = {
            "privileged": own.get("privileged", False),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
            "runAsNonRoot": merged.get("runAsNonRoot") is not True,
            "runAsUser": merged.get("runAsUser") == 0,
            "seccompProfile": merged.get("seccompProfile", {}).get("type")
            not in {"RuntimeDefault", "Localhost"},
            "capabilities.drop": capabilities.get("drop") != ["ALL"],
            "capabilities.add": not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
            "procMount": own.get("procMount", "Default") != "Default",
            "hostPort": any(port.get("hostPort") for port in container.get("ports", [])),
        }
        found += [f"{container['name']}: {name}" for name, bad in wrong.items() if bad]
    return found
