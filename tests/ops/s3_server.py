"""An S3 server on a free port of 127.0.0.1, for tests: moto behind one line of log per request.

    s3_server.py ADDRESS_FILE > LOG

Writes its endpoint to ADDRESS_FILE once it listens. The log goes to standard output, with the
full query string of each request, so that a test can count what a scan costs. It checks no
signatures and forgets everything when it ends.
"""

import sys
from pathlib import Path
from urllib.parse import unquote

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class LoggedRequests(WSGIRequestHandler):
    """Logs method, path with query, and status: no time and no colour, so it is easy to count."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code="-", size="-"):
        # One write, so that the lines of two requests do not mix.
        sys.stdout.write(f"{self.command} {unquote(self.path)} {int(code)}\n")
        sys.stdout.flush()

    def log(self, type, message, *args):
        print(message % args, file=sys.stderr, flush=True)


def main() -> None:
    address_file = Path(sys.argv[1])
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=LoggedRequests)
    # Renamed into place: whoever waits for the file never reads a half of it.
    part = address_file.with_suffix(".part")
    part.write_text(f"http://127.0.0.1:{server.server_port}\n")
    part.rename(address_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
