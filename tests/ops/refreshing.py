"""A backup that is left running until restic refreshes its lock, and an exporter that watches it.

    refreshing.py FOLDER

Runs until it is ended, and ends what it started. FOLDER/started.json says what was started, as soon
as the exporter has seen the lock; FOLDER/names has one line for each lock file, in their order.
tests/run starts it before the other tests, since restic waits five minutes before it refreshes.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn, TextIO

import exporter
import restic_places
import servers

TARGET = "refreshed"


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    restic = restic_places.Restic(os.environ["RESTIC_018"])
    place = restic_places.Folder(restic_places.make_template(restic, folder))
    config = {
        "scan": {"interval": "2s"},
        "targets": [
            {"name": TARGET, "restic": {"repository": place.location, "env": place.environment}}
        ],
    }
    with (
        restic_places.holding(restic, place, "shared") as holder,
        exporter.Exporter(folder, config) as watching,
    ):
        (name,) = holder.names
        servers.wait_for(
            "the hold", lambda: watching.samples(TARGET).all("lock_hold_since_timestamp_seconds")
        )
        samples = watching.samples(TARGET)
        started = {
            "url": watching.url,
            "repository": place.location,
            "pid": holder.pid,
            "name": name,
            "lock": json.loads(restic.run(place, "cat", "lock", name, "--no-lock", "-q")),
            "since": samples.one("lock_hold_since_timestamp_seconds"),
        }
        with (folder / "names").open("w", buffering=1) as names:
            names.write(f"{name}\n")
            part = folder / "started.part"
            part.write_text(json.dumps(started))
            part.rename(folder / "started.json")
            witness(place, {name}, names)


def witness(place: restic_places.Place, known: set[str], names: TextIO) -> NoReturn:
    """Writes down every name that a lock file ever has, without the exporter."""
    while True:
        for name in place.lock_names() - known:
            known.add(name)
            names.write(f"{name}\n")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
