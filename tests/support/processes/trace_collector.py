"""A receiver of OpenTelemetry's OTLP over HTTP, in this process: what a collector would be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.processes.web_answers import Answering, Served


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

    class Handler(Answering):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.asked_body())
            assert self.path == "/v1/traces", self.path
            for resource in request.resource_spans:
                received.services.update(
                    pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
                )
                received.spans += [span for scope in resource.scope_spans for span in scope.spans]
            answer = ExportTraceServiceResponse().SerializeToString()
            self.answer(answer, headers={"Content-Type": "application/x-protobuf"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(server.server_port)
    with Served(server):
        yield received
