"""What Alertmanager delivers to a webhook, and how long after its cause it came."""

import json
import threading
import time
from dataclasses import dataclass

import servers


@dataclass(frozen=True)
class Delivery:
    """One alert in one notification."""

    alert: dict
    at: float

    def is_about(self, alertname: str, target: str | None) -> bool:
        labels = self.alert["labels"]
        return (labels["alertname"], labels.get("target")) == (alertname, target)


class Inbox:
    """The webhook. It remembers everything, in the order in which it came."""

    def __init__(self):
        self.lock = threading.Lock()
        self.delivered: list[Delivery] = []
        # Cause, alert, and the seconds until it was told and, after the repair, resolved.
        self.table: list[tuple[str, str, float, float]] = []

    def receive(self, _method: str, _path: str, body: bytes) -> str:
        now = time.monotonic()
        with self.lock:
            self.delivered += [Delivery(alert, now) for alert in json.loads(body)["alerts"]]
        return ""

    def find(self, status: str, alertname: str, target: str | None) -> Delivery | None:
        """The newest delivery about this alert, if it has that status."""
        with self.lock:
            about = [each for each in self.delivered if each.is_about(alertname, target)]
        return about[-1] if about and about[-1].alert["status"] == status else None

    def names(self) -> set[tuple[str, str | None]]:
        with self.lock:
            return {
                (each.alert["labels"]["alertname"], each.alert["labels"].get("target"))
                for each in self.delivered
            }


@dataclass
class Case:
    """One cause, the alert that must come of it, and when each happened."""

    inbox: Inbox
    cause: str
    alertname: str
    target: str | None
    caused: float = 0.0
    told: float = 0.0

    def begin(self) -> "Case":
        self.caused = time.monotonic()
        return self

    def wait_for_page(self) -> dict:
        found = self.wait("firing")
        self.told = found.at
        return found.alert

    def wait_for_end(self, repaired: float) -> None:
        """Waits for the resolution of what was repaired at that time."""
        ended = self.wait("resolved").at
        row = (self.cause, self.alertname, self.told - self.caused, ended - repaired)
        self.inbox.table.append(row)

    def wait(self, status: str) -> Delivery:
        return servers.wait_for(
            f"{self.alertname} of {self.target} to be {status}",
            lambda: self.inbox.find(status, self.alertname, self.target),
        )


def print_table(inbox: Inbox) -> None:
    print(f"\n{'cause':<44} {'alert':<24} {'page':>7} {'resolved':>9}")
    for cause, alertname, page, resolved in inbox.table:
        print(f"{cause:<44} {alertname:<24} {page:>5.1f} s {resolved:>7.1f} s")
