"""A proxy in front of a broker's REST that notes what ``pulsar-admin`` sends."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple
from urllib.parse import urlsplit

#: Who takes longer does not answer at all.
ANSWER_LIMIT_S: Final = 60.0
#: What each of the two connections says for itself.
_OF_A_CONNECTION: Final = frozenset({"connection", "host", "content-length", "transfer-encoding", "keep-alive", "date"})


class Request(NamedTuple):
    """What was sent, and the status of its answer."""

    method: str
    target: str
    content_type: str
    accept: str
    body: bytes | None
    status: int


class Recorder:
    """Made by :func:`recording`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._taken: list[Request] = []

    def note(self, request: Request) -> None:
        """One was answered."""
        self._taken.append(request)

    def take(self) -> list[Request]:
        """What came since this was asked last."""
        taken, self._taken = self._taken, []
        return taken


@contextmanager
def recording(web_url: str) -> Iterator[Recorder]:
    """In front of the broker at ``web_url``."""
    address = urlsplit(web_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

        def _pass(self) -> None:
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length is not None else None
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_LIMIT_S)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION}
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except OSError as error:
                self.send_error(http.HTTPStatus.BAD_GATEWAY, f"no answer of the broker: {error!r}")
                return
            finally:
                connection.close()
            told = [self.headers.get(name, "") for name in ("Content-Type", "Accept")]
            recorder.note(Request(self.command, self.path, told[0], told[1], body, answer.status))
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_A_CONNECTION:
                    self.send_header(name, value)
            if answer.status not in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = _pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="recorder")
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
