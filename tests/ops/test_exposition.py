"""The committed pages of metrics are what Prometheus' own tools take without complaint."""

import subprocess
import unittest

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from checkout import ROOT

GOLDEN = ROOT / "tests" / "golden"


class Exposition(unittest.TestCase):
    def test_promtool_finds_nothing(self):
        pages = sorted((GOLDEN / "metrics").glob("*.prom"))
        self.assertGreater(len(pages), 5)
        for page in pages:
            with self.subTest(page=page.name), page.open("rb") as text:
                said = subprocess.run(
                    ["promtool", "check", "metrics"], stdin=text, capture_output=True, text=True
                )
                self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "", ""))

    def test_a_strict_parser_reads_open_metrics_and_finds_the_same_samples(self):
        pages = sorted((GOLDEN / "openmetrics").glob("*.om"))
        self.assertGreater(len(pages), 5)
        for page in pages:
            with self.subTest(page=page.name):
                families = list(text_string_to_metric_families(page.read_text()))
                samples = sum(len(family.samples) for family in families)
                older = (GOLDEN / "metrics" / f"{page.stem}.prom").read_text().splitlines()
                self.assertEqual(samples, sum(not line.startswith("#") for line in older))


if __name__ == "__main__":
    unittest.main()
