"""A web server that answers what it is told to, in order, and notes what it was asked."""

from __future__ import annotations

import select
import socketserver
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final, Self

_CUT_OFF: Final = b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"
#: What no client can read: other protocols, lines without end, bodies that are cut off.
NO_ANSWERS: Final = {
    "another protocol": b"\x00\x00\x00\x05 no HTTP\r\n\r\n",
    "endless line": b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    "body cut off": b"HTTP/1.1 200 OK\r\n" + _CUT_OFF,
    "reason cut off": b"HTTP/1.1 503 Later\r\n" + _CUT_OFF,
}


class Answering(BaseHTTPRequestHandler):
    """Answers with bodies whose length is known, and prints nothing."""

    def asked_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Served:
    """A server at ``url``, on a thread of its own until it is closed, which may be twice."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self._server = server
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        self._thread.start()
        self._is_closed = False

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WebAnswers(Served):
    """``answers``: status, body, ``Location`` (empty: none) of each."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, str]] = []
        #: Paths and headers.
        self.asked: list[tuple[str, dict[str, str]]] = []
        web = self

        class Handler(Answering):
            def do_POST(self) -> None:
                self.asked_body()
                self.do_GET()

            def do_GET(self) -> None:
                web.asked.append((self.path, dict(self.headers)))
                status, body, location = web.answers.pop(0)
                self.answer(body.encode(), status=status, headers={"Location": location} if location else {})

        super().__init__(HTTPServer(("127.0.0.1", 0), Handler))


class RawAnswers(Served):
    """Answers each connection with the same bytes, once a request came, and closes it."""

    def __init__(self, answer: bytes) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(65_536)
                self.request.sendall(answer)

        super().__init__(socketserver.TCPServer(("127.0.0.1", 0), Handler))


#: What a byte now and then may follow for ever.
DRIPPING: Final = {
    "status": b"HTTP/1.1 200 ",
    "head": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "reason": b"HTTP/1.1 503 Later\r\nContent-Length: 1000000\r\n\r\n",
}


class Dripping(Served):
    """Answers each connection with ``begun`` and then ``again`` each ``wait_s`` seconds, until it is closed."""

    def __init__(self, begun: bytes, again: bytes = b"x", wait_s: float = 0.01) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(65_536)
                self.request.sendall(begun)
                try:
                    while not select.select([self.request], [], [], wait_s)[0]:
                        self.request.sendall(again)
                except OSError:
                    pass

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
