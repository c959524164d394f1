"""Runs tests that mostly wait at the same time, and tells of them one after the other."""

import unittest
from concurrent import futures

WORKERS = 6


class Recorder(unittest.TestResult):
    """Remembers what a test reported."""

    def __init__(self):
        super().__init__()
        self.events: list[tuple[str, tuple]] = []

    def replay(self, result: unittest.TestResult) -> None:
        for name, arguments in self.events:
            getattr(result, name)(*arguments)


def recorded(name: str):
    def record(self: Recorder, *arguments):
        self.events.append((name, arguments))

    return record


for event in ("startTest", "stopTest", "addSuccess", "addError", "addFailure", "addSkip"):
    setattr(Recorder, event, recorded(event))
for event in ("addSubTest", "addExpectedFailure", "addUnexpectedSuccess"):
    setattr(Recorder, event, recorded(event))


class Together(unittest.TestSuite):
    """A suite of tests without set-up that they share."""

    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        def one(test: unittest.TestCase) -> Recorder:
            recorder = Recorder()
            test.run(recorder)
            return recorder

        with futures.ThreadPoolExecutor(WORKERS) as pool:
            for recorder in pool.map(one, flat(self)):
                recorder.replay(result)
        return result


def flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found = []
    for test in suite:
        found += flat(test) if isinstance(test, unittest.TestSuite) else [test]
    return found
