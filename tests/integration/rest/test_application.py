"""What every path has in common: errors, bounds."""

from __future__ import annotations

import pytest

from support.rest import Rest

pytestmark = pytest.mark.integration


def test_errors_are_pulsars(rest: Rest) -> None:
    assert rest.get("nothing/here").status == 404
    assert rest.get("nothing/here").reason
    assert rest.get("/elsewhere").status == 404
    assert rest.post("clusters").status == 405
    assert rest.call("PUT", "clusters/x", raw=b"{").status == 400
    assert rest.call("PUT", "clusters/x", raw=b"[" * 100_000).status in (400, 413)
    assert rest.call("PUT", "clusters/x", raw=b'"text"').status == 400
    assert rest.call("PUT", "clusters/x", raw=b'{"a":"' + b"x" * 200_000 + b'"}').status == 413
    assert rest.get("clusters/" + "x" * 600).status == 412
