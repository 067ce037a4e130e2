"""Questions over HTTP: what is asked for is there, or the answer says what is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from geminga.app.lifecycle.log_lines import PackageLevels
from geminga.app.lifecycle.plain_http import PlainHttp


def test_it_tells_its_metrics_and_what_else_it_has() -> None:
    http = PlainHttp("auto-recovery", [((), lambda: {"audits": 3}), ((("bookie", "b"),), lambda: {"entries": 4})], {})
    status, page, media_type = asyncio.run(http.answer("GET", "/metrics/"))
    assert (status, media_type.partition(";")[0]) == (200, "text/plain")
    assert {"audits 3", 'entries{bookie="b"} 4'} <= set(page.splitlines())
    assert asyncio.run(http.answer("HEAD", "/heartbeat"))[:2] == (200, "OK\n")
    assert asyncio.run(http.answer("POST", "/metrics"))[:2] == (405, "POST of /metrics: expected GET\n")
    assert asyncio.run(http.answer("GET", "/x"))[:2] == (
        404,
        "/x is not served by this auto-recovery; it has /metrics, /heartbeat\n",
    )


def changed(http: PlainHttp, body: bytes, client: str = "127.0.0.1") -> tuple[int, bytes]:
    """Status and body of an answer to new levels."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "PUT", "path": "/api/v1/log_levels", "client": (client, 1)}
    asyncio.run(http(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def test_levels_of_its_log_are_changed_by_who_is_on_this_machine_or_known() -> None:
    levels = PackageLevels()
    http = PlainHttp("bookie", [], {}, levels)
    try:
        assert changed(http, b'{"geminga.never.here": "debug"}') == (200, b'{"geminga.never.here": "debug"}')
        assert logging.getLogger("geminga.never.here").level == logging.DEBUG
        assert asyncio.run(http.answer("GET", "/api/v1/log_levels"))[1] == '{"geminga.never.here": "debug"}'
        assert changed(http, b"{}", "10.0.0.7")[0] == 403
        assert changed(http, b'["x"]')[0] == 400
        status, why = changed(http, b'{"geminga.bookie": "loud"}')
        assert status == 400
        assert b"gemingaLogLevels=geminga.bookie=loud: expected a package" in why
        assert changed(http, b" " * 70_000)[0] == 413
        assert changed(http, b"[" * 60_000)[0] == 400
        assert changed(http, b"\xff")[0] == 400
        status, why = changed(http, b'{"geminga.\\ud800": "debug"}')
        assert status == 400
        # What was refused changed nothing.
        assert logging.getLogger("geminga.never.here").level == logging.DEBUG
        assert changed(PlainHttp("bookie", [], {}, levels, knows_clients=True), b"{}", "10.0.0.7") == (200, b"{}")
        assert logging.getLogger("geminga.never.here").level == logging.NOTSET
    finally:
        levels.follow({})
