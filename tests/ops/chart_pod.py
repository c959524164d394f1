"""A pod of the rendered chart, started as a kubelet and a container runtime would, without either.

Volumes are folders laid out as the kubelet lays them out, mounted into a root of their own that is
read-only; the command, its environment, user, groups and capabilities are those of the rendered
container. What is missing is a cluster: the network is this machine's, and there is no image, so
programs and libraries are this machine's, too. It knows nothing of what the exporter says.
"""

import base64
import math
import os
import shlex
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import chart
import checkout
import servers

PROGRAM = "/program/lock_exporter"
# The kubelet takes any certificate.
ANY_CERTIFICATE = ssl.create_default_context()
ANY_CERTIFICATE.check_hostname = False
ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE

Files = dict[str, str]


@dataclass
class Pod:
    """One pod of these objects. `secrets` and `configmaps` are those that the chart does not make.
    """

    folder: Path
    objects: list[dict]
    secrets: dict[str, Files] = field(default_factory=dict)
    configmaps: dict[str, Files] = field(default_factory=dict)
    name: str = "demo-lock-exporter-0"
    node: str = "node-1"
    process: subprocess.Popen | None = None

    def __post_init__(self):
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.log = self.folder / "log"
        self.spec = chart.pod(self.objects)["spec"]
        (self.container,) = [c for c in self.spec["containers"] if c["name"] == "exporter"]
        whole = self.spec.get("securityContext", {})
        self.context = whole | self.container.get("securityContext", {})
        self.group = whole.get("fsGroup")
        for volume in self.spec["volumes"] + self.claims():
            self.make(volume)

    # ---- volumes ---------------------------------------------------------------------------------

    def claims(self) -> list[dict]:
        """The claims of a StatefulSet, as volumes that are empty yet."""
        made = chart.workload(self.objects)["spec"].get("volumeClaimTemplates", [])
        return [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in made]

    def path(self, volume: str) -> Path:
        return self.folder / "volumes" / volume

    def make(self, volume: dict) -> None:
        path = self.path(volume["name"])
        path.mkdir(parents=True)
        if "hostPath" in volume:
            return
        if {"emptyDir", "persistentVolumeClaim"} & set(volume):
            os.chown(path, 0, self.group or 0)
            path.chmod(0o2777)
            return
        files, mode = self.content(volume)
        self.write(volume["name"], files, mode)

    def content(self, volume: dict) -> tuple[Files, int]:
        """The files of a volume that shows Secrets and ConfigMaps, and their mode."""
        if "projected" in volume:
            source = volume["projected"]
            files: Files = {}
            for part in source["sources"]:
                ((kind, what),) = part.items()
                files |= self.keys(kind, what["name"], what)
        else:
            ((kind, source),) = ((k, v) for k, v in volume.items() if k != "name")
            files = self.keys(kind, source.get("secretName") or source.get("name"), source)
        return files, source.get("defaultMode", 0o644)

    def keys(self, kind: str, name: str, source: dict) -> Files:
        given = self.secrets if kind == "secret" else self.configmaps
        kinds = {"secret": "Secret", "configMap": "ConfigMap"}
        own = {
            item["metadata"]["name"]: item.get("data", {}) | item.get("stringData", {})
            for item in self.objects
            if item["kind"] == kinds[kind]
        }
        if name not in own | given:
            assert source.get("optional"), f"no {kind} {name}"
            return {}
        found = (own | given)[name]
        if "items" in source:
            return {item["path"]: found[item["key"]] for item in source["items"]}
        return found

    def write(self, volume: str, files: Files, mode: int) -> None:
        """Writes all files of a volume at once, as the kubelet does: behind a link that turns."""
        path = self.path(volume)
        made = path / f"..{len(list(path.iterdir()))}"
        made.mkdir()
        for name, text in files.items():
            (made / name).write_text(text)
            # With a group for the pod, its members may read whatever the mode says.
            (made / name).chmod(mode | 0o440 if self.group else mode)
            os.chown(made / name, 0, self.group or 0)
            if not (path / name).is_symlink():
                (path / name).symlink_to(f"..data/{name}")
        turned = path / "..data_tmp"
        turned.symlink_to(made.name)
        turned.rename(path / "..data")

    # ---- the container ---------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        fields = {"metadata.name": self.name, "spec.nodeName": self.node}
        found = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        for variable in self.container["env"]:
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                found[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "resourceFieldRef" in source:
                found[variable["name"]] = self.cores(self.container["resources"]["limits"]["cpu"])
            else:
                found[variable["name"]] = variable["value"]
        return found

    @staticmethod
    def cores(quantity: str) -> str:
        """`500m` is half a core; the kubelet rounds up."""
        milli = quantity.endswith("m")
        return str(math.ceil(float(quantity.rstrip("m")) / (1000 if milli else 1)))

    def privileges(self) -> list[str]:
        """The words that take away what the container may not have."""
        capabilities = self.context.get("capabilities", {})
        assert capabilities.get("drop") == ["ALL"]
        kept = "".join(f",+{name.lower()}" for name in capabilities.get("add", []))
        user, group = self.context["runAsUser"], self.context.get("runAsGroup", 0)
        words = ["setpriv", f"--reuid={user}", f"--regid={group}"]
        words += [f"--groups={self.group}"] if self.group else ["--clear-groups"]
        words += [f"--bounding-set=-all{kept}", "--inh-caps=-all"]
        return words + ([] if self.context["allowPrivilegeEscalation"] else ["--no-new-privs"])

    def script(self, command: list[str]) -> str:
        """Makes the root and runs a command in it with the privileges of the container."""
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        names = " ".join(("localhost", *self.services()))
        lines = [
            "set -e",
            f"mount -t tmpfs -o mode=755 tmpfs {root}",
            f"cd {root}",
            "mkdir -p usr etc proc dev tmp var/lib",
            "for name in bin sbin lib lib64; do ln -s usr/$name $name; done",
            "mount --rbind -o ro /usr usr",
            "mount -t proc proc proc",
            "for name in null urandom; do touch dev/$name; mount --bind /dev/$name dev/$name; done",
            "ln -s /proc/self/fd dev/fd",
            f"echo '127.0.0.1 {names}' > etc/hosts",
            "echo 'root:x:0:0::/:/bin/sh' > etc/passwd",
            "echo 'exporter:x:65532:65532::/nonexistent:/bin/sh' >> etc/passwd",
            "mkdir -p program && touch program/lock_exporter",
            f"mount --bind {shlex.quote(checkout.exporter())} program/lock_exporter",
        ]
        for mount in self.container["volumeMounts"]:
            at = mount["mountPath"].lstrip("/")
            volume = self.volume(mount["name"])
            source = volume.get("hostPath", {}).get("path") or self.path(mount["name"])
            lines.append(f"mkdir -p {at} && mount --rbind {source} {at}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {at}")
        if self.context.get("readOnlyRootFilesystem"):
            lines.append(f"mount -o remount,ro {root}")
        given = [f"{name}={value}" for name, value in self.environment().items()]
        words = ["chroot", str(root), *self.privileges(), "env", "-i", *given, *command]
        return "\n".join([*lines, "exec " + shlex.join(words)])

    def volume(self, name: str) -> dict:
        return next((v for v in self.spec["volumes"] if v["name"] == name), {})

    def services(self) -> list[str]:
        """Names that DNS would know in a cluster."""
        return [
            f"{item['metadata']['name']}.{item['metadata']['namespace']}.svc"
            for item in self.objects
            if item["kind"] == "Service"
        ]

    def isolated(self, command: list[str]) -> list[str]:
        """In namespaces of its own, where it is process 1."""
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", self.script(command)),
        ]

    def run(self, command: list[str]) -> subprocess.CompletedProcess:
        """Runs another command where the exporter would run."""
        return subprocess.run(
            self.isolated(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=servers.DEADLINE_SECONDS,
        )

    def check(self) -> subprocess.CompletedProcess:
        """What the exporter says of the rendered arguments and files."""
        return self.run([PROGRAM, *self.container["args"], "--config.check"])

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.isolated([PROGRAM, *self.container["args"]]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            servers.wait_for("the pod to be ready", self.is_ready)
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"{error}\n{self.log.read_text()[-3000:]}") from None
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            # Not who waits for it: a process that changed its user does not end with its parent.
            self.signal(signal.SIGKILL)
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), number)

    def terminate(self) -> int:
        """Ends it as the kubelet does, and gives its exit code."""
        self.signal(signal.SIGTERM)
        assert self.process
        return self.process.wait(self.spec["terminationGracePeriodSeconds"])

    # ---- who asks --------------------------------------------------------------------------------

    def port(self, name: str) -> int:
        return next(p["containerPort"] for p in self.container["ports"] if p["name"] == name)

    def probe(self, kind: str) -> int:
        """The status that a probe of the kubelet gets."""
        asked = self.container[kind]["httpGet"]
        scheme = asked.get("scheme", "HTTP").lower()
        url = f"{scheme}://127.0.0.1:{self.port(asked['port'])}{asked['path']}"
        return self.get(url)[0]

    def is_ready(self) -> bool:
        assert self.process and self.process.poll() is None, "it ended"
        return self.probe("readinessProbe") == 200 and self.probe("livenessProbe") == 200

    def get(self, url: str, user: str = "") -> tuple[int, str]:
        request = urllib.request.Request(url)
        if user:
            request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=10, context=ANY_CERTIFICATE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self, user: str = "", scheme: str = "http", path: str = "/metrics") -> str:
        status, page = self.get(f"{scheme}://127.0.0.1:{self.port('http')}{path}", user)
        assert status == 200, page
        return page

    def helm_test(self) -> subprocess.CompletedProcess:
        """Runs what the pod of `helm test` runs."""
        (container,) = chart.only(self.objects, "Pod")["spec"]["containers"]
        return self.run([*container["command"], *container["args"]])


def free_ports() -> dict:
    """Values for ports that nobody has on this machine."""
    port = servers.free_port()
    return {
        "containerPort": port,
        "service": {"port": port},
        "webConfig": {"probePort": servers.free_port()},
    }


def certificate(folder: Path) -> Files:
    """A Secret of type kubernetes.io/tls."""
    key, file = folder / "tls.key", folder / "tls.crt"
    subprocess.run(
        [
            *(checkout.program("openssl"), "req", "-x509", "-newkey", "ed25519", "-nodes"),
            *("-days", "2", "-subj", "/CN=locks", "-addext", "subjectAltName=DNS:locks"),
            *("-keyout", str(key), "-out", str(file)),
        ],
        capture_output=True,
        check=True,
    )
    return {"tls.crt": file.read_text(), "tls.key": key.read_text()}
