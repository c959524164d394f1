"""A look at many lock files on a busy machine, beside lslocks in the same run."""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import yaml

PROCESSES, LOCKS_EACH, WATCHED = 2_000, 2, 200
ROUNDS = 5

# Small processes that each have a few locks, as `sleep`, which costs no memory to speak of.
HOLDERS = r"""
use Fcntl qw(:flock); $^F = 255; $| = 1;
my ($folder, $processes, $each) = @ARGV;
pipe(my $read, my $write);
my @pids;
for my $i (0 .. $processes - 1) {
    my $pid = fork() // die;
    if ($pid) { push @pids, $pid; next }
    my @held;
    for my $j (0 .. $each - 1) {
        open(my $file, '>', "$folder/$i.$j.lock") or die;
        flock($file, LOCK_EX) or die;
        push @held, $file;
    }
    syswrite($write, 'x');
    close $_ for $read, $write, *STDIN, *STDOUT;
    exec 'sleep', '3600';
}
close $write;
my $ready = 0;
while ($ready < $processes) { $ready += sysread($read, my $some, 4096) || die }
print "ready\n";
<STDIN>;
kill 'TERM', @pids;
"""


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    took = time.perf_counter() - begun
    assert done.returncode in (0, 1), done
    return took


def measure(folder: Path, program: str) -> tuple[float, float]:
    """Seconds that one `check` of the watched files takes, and one lslocks."""
    locks = folder / "locks"
    locks.mkdir()
    paths = [locks / f"{number}.0.lock" for number in range(WATCHED)]
    targets = [{"name": path.stem, "file": {"path": str(path)}} for path in paths]
    config = folder / "locks.yml"
    config.write_text(yaml.safe_dump({"targets": targets}))
    check = [program, "check", f"--config.file={config}", "--output=prom"]
    command = ["perl", "-e", HOLDERS, str(locks), str(PROCESSES), str(LOCKS_EACH)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holders:
        try:
            assert holders.stdout.readline() == "ready\n"
            done = subprocess.run(check, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            assert done.stdout.count('state="exclusive"} 1') == WATCHED, done
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(seconds(check))
                theirs.append(seconds(["lslocks", "-n"]))
        finally:
            holders.communicate("\n")
    return median(ours), median(theirs)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        mine, other = measure(Path(name), os.environ["LOCK_EXPORTER"])
    print(f"{mine * 1000:.0f} ms against {other * 1000:.0f} ms")
    sys.exit(mine > other / 2)
