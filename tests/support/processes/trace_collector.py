"""A receiver of OpenTelemetry's OTLP over HTTP, in this process: what a collector would be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Received:
    """The spans that came until now."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.services: set[str] = set()

    def named(self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda attributes: True) -> list[Span]:
        """Those of a name whose attributes are wanted."""
        return [span for span in self.spans if span.name == name and wanted(attributes_of(span))]


def attributes_of(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


@contextmanager
def collecting() -> Iterator[Received]:
    """One on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces", self.path
            for resource in request.resource_spans:
                received.services.update(
                    pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
                )
                received.spans += [span for scope in resource.scope_spans for span in scope.spans]
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Received(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
