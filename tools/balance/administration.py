"""The little that measurements ask of brokers over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

TIMEOUT_S: Final = 60.0


def ask(web_url: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    """One request, sent on by 307 as often as brokers do; raises ``urllib.error.HTTPError``."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{web_url}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                text = answer.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 307:
                    raise
            # Followed for GET alone by the library.
            request.full_url = error.headers["Location"]


def topics_of(web_url: str, namespace: str) -> set[str]:
    """Topics of ``tenant/namespace`` that are open at this broker."""
    found = ask(web_url, "GET", "/admin/v2/broker-stats/topics")
    return {topic for domains in found.get(namespace, {}).values() for topics in domains.values() for topic in topics}


def broker_ids(web_url: str, cluster: str) -> list[str]:
    """Who is registered, as this broker sees it."""
    return sorted(ask(web_url, "GET", f"/admin/v2/brokers/{cluster}"))
