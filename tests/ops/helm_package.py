#!/usr/bin/env python3
"""What `helm package` does, by Helm's own library, for machines that have no helm. It takes the
arguments that packaging/release gives, and no others."""

import argparse
import sys

import helm_python


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("command", choices=["package"])
    parser.add_argument("--sign", action="store_true")
    parser.add_argument("--key")
    parser.add_argument("--keyring")
    parser.add_argument("--destination", required=True)
    parser.add_argument("chart")
    given = parser.parse_args()
    package = helm_python.package(given.chart, destination=given.destination)
    if given.sign:
        helm_python.sign(package, key=given.key, keyring=given.keyring)
    return 0


if __name__ == "__main__":
    sys.exit(main())
