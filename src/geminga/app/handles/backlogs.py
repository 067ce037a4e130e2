"""Backlogs of a namespace, or of all: asked topic by topic."""

from __future__ import annotations

import asyncio
from typing import Protocol

from geminga.admin._namespaces import Namespaces
from geminga.admin._tenants import Tenants
from geminga.admin._topics import Topics
from geminga.admin.errors import NotAvailableError, NotFoundError, UnreachableError
from geminga.app.handles.core.backlog_rows import BacklogRow, rows_of


class Listing(Protocol):
    """The calls that are used; :class:`geminga.admin.AdminClient` has them."""

    @property
    def tenants(self) -> Tenants: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def topics(self) -> Topics: ...


async def backlogs(admin: Listing, namespace: str = "") -> tuple[list[BacklogRow], list[str]]:
    """Rows, and the topics that nobody tells of now. ``namespace``: empty: all. Raises AdminError."""
    if namespace:
        topics = [str(topic) for topic in await admin.topics.list(namespace)]
    else:
        names = [name for tenant in await admin.tenants.list() for name in await _unless_gone(admin.namespaces, tenant)]
        topics = [topic for name in names for topic in await _unless_gone(admin.topics, name)]
    found = await asyncio.gather(*(_of_topic(admin, topic) for topic in topics))
    rows = [row for each in found if each is not None for row in each]
    return rows, [topic for topic, each in zip(topics, found, strict=True) if each is None]


async def _unless_gone(kind: Namespaces | Topics, whose: str) -> list[str]:
    """What ``whose`` has; nothing where it was deleted since it was listed."""
    try:
        return [str(name) for name in await kind.list(whose)]
    except NotFoundError:
        return []


async def _of_topic(admin: Listing, topic: str) -> list[BacklogRow] | None:
    try:
        stats = await admin.topics.stats(topic, precise_backlog=True, backlog_size=True, earliest_time=True)
    except NotFoundError:
        return []  # deleted since it was listed
    except (NotAvailableError, UnreachableError):
        return None  # sent on to a broker that is gone, too: others tell of theirs
    return list(rows_of(topic, stats))
