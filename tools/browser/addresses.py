"""Addresses of the console as the harness asks for them."""

from __future__ import annotations

from urllib.parse import urlencode

from geminga.app.console.acts import all_acts
from tools.browser.world import ORDERS


def page_of(path: str, **query: str) -> str:
    """Below the server."""
    return f"/console{path}?{urlencode(query)}" if query else f"/console{path}"


def act_paths() -> list[str]:
    """All acts, each with what it takes to be asked about."""
    given = {
        "topic": f"persistent://{ORDERS}",
        "namespace": "shop/orders",
        "tenant": "shop",
        "subscription": "billing",
        "role": "billing-service",
    }
    return [page_of(f"/acts/{name}", **given) for name in all_acts()]
