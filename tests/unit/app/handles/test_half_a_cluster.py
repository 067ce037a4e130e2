"""A broker is gone and its topics are still its own: what of them can be told is told, and of the others all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from geminga.admin import AdminClient, NotFoundError, UnreachableError
from geminga.admin._calling import Request
from geminga.app.handles.backlogs import backlogs
from geminga.app.handles.core.causes import Cause
from geminga.app.handles.doctor import examine

TOPIC = "persistent://public/default/t"
REFUSED = "no answer: [Errno 111] Connection refused"


class HalfCluster:
    """The administration of a broker that sends on what is about partition 1, to a broker that is gone."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.is_there = is_there

    async def ask(self, request: Request[Any]) -> Any:
        path = request.path
        if not self.is_there or "t-partition-1" in path:
            raise UnreachableError(f"{request.method} {path}", 0, REFUSED)
        answers = {
            "/admin/v2/tenants": ["public"],
            "/admin/v2/namespaces/public": ["public/default"],
            "/admin/v2/persistent/public/default": [f"{TOPIC}-partition-{number}" for number in range(3)],
            "/admin/v2/persistent/public/default/t/partitions": {"partitions": 3},
        }
        if path in answers:
            return answers[path]
        return {"subscriptions": {"s": {"msgBacklog": 5}}} if path.endswith("/stats") else {}

    async def close(self) -> None:
        pass


def admin(cluster: HalfCluster) -> AdminClient:
    return AdminClient("http://here", timeout_s=1, headers=None, tls=None, asks=cluster)


def test_the_doctor_says_of_a_partition_whose_broker_is_gone_that_nobody_serves_it() -> None:
    found = asyncio.run(examine(admin(HalfCluster()), TOPIC, now_ms=0))
    causes = {topic.removeprefix(TOPIC): [finding.cause for finding in findings] for topic, findings in found.items()}
    assert causes == {
        "-partition-0": [Cause.NO_CONSUMER],
        "-partition-1": [Cause.NO_OWNER],
        "-partition-2": [Cause.NO_CONSUMER],
    }
    assert REFUSED in found[f"{TOPIC}-partition-1"][0].sentence


def test_backlogs_of_other_brokers_are_told_and_the_rest_is_named() -> None:
    rows, untold, refused = asyncio.run(backlogs(admin(HalfCluster())))
    assert refused == {}
    assert [(row.place[0], row.entries) for row in rows] == [(f"{TOPIC}-partition-{number}", 5) for number in (0, 2)]
    assert untold == [f"{TOPIC}-partition-1"]


def test_the_broker_that_is_asked_is_not_there() -> None:
    gone = admin(HalfCluster(is_there=False))
    with pytest.raises(UnreachableError):
        asyncio.run(examine(gone, TOPIC, now_ms=0))
    with pytest.raises(UnreachableError):
        asyncio.run(backlogs(gone))


def test_what_is_deleted_between_two_lists_has_no_backlog() -> None:
    class Deleted(HalfCluster):
        """A tenant and a namespace are listed, and gone when they are asked for."""

        async def ask(self, request: Request[Any]) -> Any:
            listed = {
                "/admin/v2/tenants": ["gone", "public"],
                "/admin/v2/namespaces/public": ["public/gone", "public/default"],
            }
            if request.path.endswith("/gone"):
                raise NotFoundError(f"{request.method} {request.path}", 404, "does not exist")
            return listed.get(request.path) or await super().ask(request)

    rows, _, refused = asyncio.run(backlogs(admin(Deleted())))
    assert refused == {}
    assert [row.place[0] for row in rows] == [f"{TOPIC}-partition-{number}" for number in (0, 2)]
    with pytest.raises(NotFoundError):
        asyncio.run(backlogs(admin(Deleted()), "public/gone"))
