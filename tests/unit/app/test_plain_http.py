"""Questions over HTTP: what is asked for is there, or the answer says what is."""

from __future__ import annotations

import asyncio

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
