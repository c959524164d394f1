"""Runs the Python tests and ends with one line that can be counted.

run.py [NAME ...]      the tests of tests/ops/test_NAME.py; without a name all but the long ones
"""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent
LONG = {"pictures", "restic_agrees", "debian", "container", "sbom"}


def names() -> list[str]:
    found = (path.stem.removeprefix("test_") for path in HERE.glob("test_*.py"))
    return sorted(name for name in found if name not in LONG)


def main() -> int:
    sys.path.insert(0, str(HERE))
    suite = unittest.TestSuite()
    for name in sys.argv[1:] or names():
        suite.addTest(unittest.defaultTestLoader.loadTestsFromName(f"test_{name}"))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    # Nothing is skipped here: what cannot run is a failure. A test with several failing subtests
    # failed once.
    bad = [test for test, _ in result.failures + result.errors + result.skipped]
    bad += result.unexpectedSuccesses
    failed = {getattr(test, "test_case", test).id() for test in bad}
    ran = max(result.testsRun, len(failed))
    print(f"{ran - len(failed)} passed, {len(failed)} failed")
    return 0 if ran and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
