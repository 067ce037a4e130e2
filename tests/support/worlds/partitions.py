"""Partitioned topics for tests, made and grown over the admin REST."""

from __future__ import annotations

import json
import urllib.request


def set_partitions(web_service_url: str, topic: str, count: int, *, is_new: bool = True) -> None:
    """Create ``public/default/topic`` with ``count`` partitions, or grow it to as many."""
    request = urllib.request.Request(
        f"{web_service_url}/admin/v2/persistent/public/default/{topic}/partitions",
        data=json.dumps(count).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT" if is_new else "POST",
    )
    with urllib.request.urlopen(request) as response:
        assert response.status in (200, 204)


def stats(web_service_url: str, topic: str) -> dict:
    """The topic's statistics."""
    with urllib.request.urlopen(f"{web_service_url}/admin/v2/persistent/public/default/{topic}/stats") as response:
        return json.load(response)


def delete_topic(web_service_url: str, topic: str) -> None:
    """Delete it, whoever uses it."""
    url = f"{web_service_url}/admin/v2/persistent/public/default/{topic}?force=true"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as response:
        assert response.status in (200, 204)
