"""The exporter under test, as a server and as `check`, and what it says as plain values."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

import checkout
import servers

# `check` waits for keys to be derived, one after the other where memory is scarce.
CHECK_SECONDS = 120


class Exporter(servers.Server):
    """A running exporter.

    `before` are the words before the program, as of a tracer.
    """

    def __init__(
        self,
        folder: Path,
        config: dict,
        environment: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
    ):
        file = folder / "lock_exporter.yml"
        file.write_text(yaml.safe_dump(config))
        program = checkout.exporter()
        super().__init__(
            "lock_exporter",
            folder,
            lambda port: [
                *before,
                program,
                f"--config.file={file}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
        )
        self.environment = environment or {}
        self.traced = bool(before)

    def __exit__(self, *arguments):
        if self.traced and self.process and self.process.poll() is None:
            # A tracer that is ended leaves what it traced running: the other way round it follows.
            pid = self.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGTERM)
            if children:
                self.process.wait(10)
        super().__exit__(*arguments)

    def page(self) -> str:
        return servers.get(f"{self.url}/metrics").decode()

    def samples(self, target: str) -> "Samples":
        return samples(self.page(), target)

    def failed_scans(self) -> dict[str, float]:
        """How many scans failed, by reason."""
        text = servers.get(f"{self.url}/metrics?name[]=lock_exporter_scan_errors_total").decode()
        return {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.endswith("_total") and sample.value
        }

    def readable_targets(self) -> set[str]:
        return {
            sample.labels["target"]
            for family in text_string_to_metric_families(self.page())
            for sample in family.samples
            if sample.name == "lock_scan_success" and sample.value == 1
        }


@dataclass
class Samples:
    """The samples of one target, without the labels that name it."""

    found: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)

    def add(self, name: str, labels: dict[str, str], value: float) -> None:
        self.found.setdefault(name, []).append((labels, value))

    def all(self, name: str, **wanted: str) -> list[tuple[dict[str, str], float]]:
        return [
            (labels, value)
            for labels, value in self.found.get(name, [])
            if wanted.items() <= labels.items()
        ]

    def one(self, name: str, **wanted: str) -> float:
        found = self.all(name, **wanted)
        if len(found) != 1:
            raise LookupError(f"{len(found)} samples of {name} with {wanted}")
        return found[0][1]

    def sum(self, name: str, **wanted: str) -> float:
        return sum(value for _, value in self.all(name, **wanted))


def samples(page: str, target: str) -> Samples:
    """What a page says about one target."""
    found = Samples()
    # The parser is slow, and most lines of a page are of other targets or of none.
    mine = [line + "\n" for line in page.splitlines() if f'target="{target}"' in line]
    for family in text_string_to_metric_families("".join(mine)):
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels.pop("target", None) == target:
                labels.pop("host", None)
                found.add(sample.name, labels, sample.value)
    return found


def check(repository: str, environment: dict[str, str], *flags: str) -> tuple[int, dict]:
    """Exit code and JSON of `check` on one repository."""
    done = subprocess.run(
        [checkout.exporter(), "check", "-r", repository, "--output=json", *flags],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
    )
    try:
        (target,) = json.loads(done.stdout)["targets"]
    except ValueError:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}") from None
    return done.returncode, target
