"""The admin REST as tests call it: real HTTP, nothing but the standard library."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

import pulsar

#: Message ids that stand for the ends of a topic, as Pulsar writes them.
LATEST = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
EARLIEST = {"ledgerId": -1, "entryId": -1}


class Answer(NamedTuple):
    """Status, headers (lower-case names) and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON, None if it is empty."""
        return json.loads(self.body) if self.body else None

    @property
    def reason(self) -> str:
        """What Pulsar's error body says."""
        return self.json["reason"]


class Rest:
    """Calls one broker; paths are relative to ``/admin/v2`` unless they start with a slash."""

    def __init__(
        self, base_url: str, *, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """``headers``: of each request; ``tls``: where the URL asks for it."""
        self.base_url = base_url
        self.headers = dict(headers or {})
        self.tls = tls

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Answer:
        """Send a request; ``body`` as JSON, or ``raw`` as it is."""
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        url = self.base_url + (path if path.startswith("/") else f"/admin/v2/{path}")
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **self.headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.tls) as answer:
                return Answer(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers), error.read())

    def get(self, path: str) -> Answer:
        """GET."""
        return self.call("GET", path)

    def put(self, path: str, body: Any = None) -> Answer:
        """PUT."""
        return self.call("PUT", path, body)

    def post(self, path: str, body: Any = None) -> Answer:
        """POST."""
        return self.call("POST", path, body)

    def delete(self, path: str) -> Answer:
        """DELETE."""
        return self.call("DELETE", path)


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def publish(client: pulsar.Client, topic: str, count: int, **options) -> list[pulsar.MessageId]:
    """Publish ``m0``, ``m1``, ... with a key and a property; their ids."""
    producer = client.create_producer(topic, **options)
    ids = [producer.send(b"m%d" % index, properties={"n": str(index)}, partition_key="k") for index in range(count)]
    producer.close()
    return ids


def backlog_of(rest: Rest, namespace: str, subscription: str = "s") -> int:
    """Messages that a subscription of the namespace's topic ``t`` has not acknowledged."""
    return rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"][subscription]["msgBacklog"]
