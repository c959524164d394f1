"""Reads every page of a running exporter while something fails, and remembers what was false.

All its targets have one live shared lock from the beginning to the end. So whoever is told that
nobody has a lock, that it is stale, or that a page does not come, is told something false. An error
and *unknown* are never false.
"""

import threading

import exporter
import servers

BETWEEN_SECONDS = 0.2


class Oracle(threading.Thread):
    """Asks until the end of the `with` block, which fails if anything was false.

    With `answers` false the exporter itself is ill and may not answer.
    """

    def __init__(self, running: exporter.Exporter, targets: list[str], answers: bool = True):
        super().__init__(daemon=True)
        self.running = running
        self.targets = targets
        self.answers = answers
        self.ended = threading.Event()
        self.pages = 0
        self.false: list[str] = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.join()
        if kind is None:
            assert not self.false, "\n".join(self.false[:5])
            assert self.pages > 1, "no page was read"

    def run(self) -> None:
        while not self.ended.wait(BETWEEN_SECONDS):
            try:
                page = self.running.page()
            except OSError as error:
                if self.answers:
                    self.false.append(f"no page: {error}")
                continue
            self.pages += 1
            for target in self.targets:
                samples = exporter.samples(page, target)
                self.false += [f"{target}: {what}" for what in false(samples)]


def false(samples: exporter.Samples) -> list[str]:
    """What is not true of a target with one live shared lock that was seen before."""
    found = []
    state = [labels["state"] for labels, value in samples.all("lock_target_state") if value]
    if state not in (["shared"], ["unknown"]):
        found.append(f"state {state}")
    locks = samples.all("lock_target_locks")
    if locks or state != ["unknown"]:
        if sum(value for _, value in locks) != 1:
            found.append(f"locks {locks}")
    if samples.sum("lock_target_locks", state="stale"):
        found.append(f"stale {locks}")
    blocked = samples.all("lock_target_blocked", mode="exclusive")
    if blocked or state != ["unknown"]:
        if [value for _, value in blocked] != [1]:
            found.append(f"blocked {blocked}")
    if samples.sum("lock_target_unreadable_locks"):
        found.append("unreadable")
    if samples.sum("lock_holds_ended_total") or samples.sum("lock_stale_removals_total"):
        found.append("a hold that ended")
    return found


def whole(samples: exporter.Samples) -> bool:
    """Whether all is told of such a target."""
    return not false(samples) and samples.sum("lock_target_state", state="shared") == 1


class Watch:
    """An exporter that watches what will fail (`ill`) and what will not (`well`)."""

    def __init__(self, running: exporter.Exporter):
        self.running = running

    def count(self, target: str, good: bool) -> float:
        """Scans so far that were good, or that were not."""
        samples = self.running.samples(target)
        failed = samples.one("lock_scan_failures_total")
        return samples.one("lock_scans_total") - failed if good else failed

    def sees_all(self) -> None:
        for target in ("ill", "well"):
            servers.wait_for(
                f"the lock of {target}", lambda: whole(self.running.samples(target))
            )

    def fails(self, *reasons: str) -> None:
        """Waits until a scan fails, for one of these reasons, and others do not."""

        def reason() -> str | None:
            samples = self.running.samples("ill")
            found = [labels["reason"] for labels, _ in samples.all("lock_scan_error_info")]
            return found[0] if found else None

        found = servers.wait_for("a failed scan", reason)
        assert not reasons or found in reasons, f"{found}: {self.why()}"

    def others_go_on(self) -> None:
        """Waits for scans of the healthy target that begin after now."""
        before = self.count("well", good=True)
        servers.wait_for(
            "scans of the healthy target", lambda: self.count("well", good=True) > before + 2
        )

    def recovers(self) -> None:
        """After the fault no scan fails but one that was under way."""
        failed = self.count("ill", good=False)
        good = self.count("ill", good=True)
        servers.wait_for("a good scan", lambda: self.count("ill", good=True) > good)
        more = self.count("ill", good=False) - failed
        assert more <= 1, f"{more} scans failed after the fault: {self.why()}"
        assert whole(self.running.samples("ill")), self.running.samples("ill").found

    def why(self) -> str:
        """The error of the target that fails, in all its words."""
        page = servers.get_json(f"{self.running.url}/api/v1/targets")
        return str([target["error"] for target in page["targets"] if target["name"] == "ill"])

    def log(self) -> str:
        return self.running.log.read_text(errors="replace")
