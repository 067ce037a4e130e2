"""What a running pipeline says: one line that changes on a terminal, lines elsewhere, JSON for programs, Prometheus."""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from geminga.model.errors import ConfigurationError
from geminga.spark.pipelines.core.progress import BatchFigures, Totals, exposition, json_of, line_of
from geminga.wire.pages import names_of, refusal_of

#: Seconds in which somebody has to read a request for metrics, or is forgotten.
REQUEST_TIMEOUT_S: Final = 5.0


class Reporter:
    """Says what happens, once: to standard output; :func:`run` takes one of a class of your own as well."""

    def __init__(self, *, is_json: bool = False) -> None:
        """``is_json``: a line of JSON for each event, else sentences and a line that is written anew."""
        self._is_json = is_json
        self._is_live = not is_json and sys.stdout.isatty()
        self._is_open = False

    def event(self, event: str, text: str, **more: object) -> None:
        """Something that happens once: started, stopping, ended."""
        if self._is_json:
            print(json.dumps({"event": event, **more}), flush=True)
            return
        self._end_line()
        print(text, flush=True)

    def batch(self, batch: BatchFigures, totals: Totals) -> None:
        """A batch is done."""
        if self._is_json:
            print(json.dumps({"event": "batch", **json.loads(json_of(batch))}), flush=True)
        elif self._is_live:
            print(f"\r{line_of(batch, totals)}\x1b[K", end="", flush=True)
            self._is_open = True
        elif batch.rows:
            print(line_of(batch, totals), flush=True)

    def warn(self, text: str) -> None:
        """Something to look at."""
        if self._is_json:
            print(json.dumps({"event": "warning", "text": text}), flush=True)
        else:
            self._end_line()
            print(f"geminga: {text}", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self._is_open:
            print(flush=True)
            self._is_open = False


class _Server(http.server.HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who asked has left."""


class MetricsServer:
    """``with MetricsServer(port, name, totals)``: Prometheus text at ``/metrics`` of this machine; 0: a free port.

    Entering it raises ConfigurationError for a port that is not to be had.
    """

    def __init__(self, port: int, name: str, totals: Totals, is_active: Callable[[], bool]) -> None:
        names = names_of([socket.gethostname()], ())

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def setup(self) -> None:
                super().setup()
                # ``timeout`` is of one read: who sends a byte now and then would hold the only thread, and the end.
                self._cut = threading.Timer(REQUEST_TIMEOUT_S, self._cut_off)
                self._cut.daemon = True
                self._cut.start()

            def _cut_off(self) -> None:
                with suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

            def finish(self) -> None:
                self._cut.cancel()
                super().finish()

            def do_GET(self) -> None:
                host = self.headers.get("Host", "").encode("latin-1", "replace")
                reason = refusal_of(names, "GET", self.path, [(b"host", host)])
                if reason:
                    self.send_error(403, explain=reason)
                    return
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                body = exposition(name, totals, is_active=is_active()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
                pass

        # One request after the other: a scraper needs no more, and nobody can hold more than one thread.
        self._address = ("127.0.0.1", port)
        self._handler = Handler
        self._server: _Server

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        # One request after the other: a scraper needs no more, and nobody can hold more than one thread.
        try:
            self._server = _Server(self._address, self._handler)
        except OSError as error:
            host, port = self._address
            raise ConfigurationError(
                f"no metrics at {host}:{port}: {error.strerror or error}. 0 takes a free port"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="pipeline metrics", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
