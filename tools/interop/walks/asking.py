"""What walks ask of a broker's administration."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

#: A step that takes longer has hung.
STEP_S: Final = 30.0
DONE: Final = "done"
REFUSED: Final = "refused"


def outcome(status: int) -> str:
    """Statuses are compared by ``tools.interop.rest``."""
    return DONE if status < 300 else REFUSED


def ask(method: str, url: str, body: object = None) -> tuple[int, bytes, Mapping[str, str]]:
    """Status, body and headers (lower-case names) of an answer."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=STEP_S / 2) as answer:
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), {}


def make_namespace(web_url: str, namespace: str) -> None:
    """One that keeps what is acknowledged. Raises RuntimeError."""
    base = f"{web_url}/admin/v2/namespaces/{namespace}"
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    for method, url, body in (("PUT", base, None), ("POST", f"{base}/retention", retention)):
        status, answer, _ = ask(method, url, body)
        if status >= 300 and status != 409:
            raise RuntimeError(f"{method} {url}: {status} {answer!r:.200}")
