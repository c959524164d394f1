"""What the tests of the web server share: a folder, an authority, exporters that end with it."""

import contextlib
import tempfile
import unittest
from pathlib import Path

import web_server
from web_server import Authority, Web


class Case(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.file = self.folder / "web.yml"

    def authority(self) -> Authority:
        authority = Authority(self.folder, "tests")
        self.serial = authority.server()
        return authority

    def web(self, text: str, *flags: str) -> Web:
        web_server.replace(self.file, text.encode())
        return self.stack.enter_context(Web(self.folder, *flags, web=self.file))


TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"


def tls(*more: str) -> str:
    return ", ".join(["tls_server_config: {cert_file: server.pem, key_file: server.key", *more])
