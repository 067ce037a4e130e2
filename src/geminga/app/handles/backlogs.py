"""Backlogs of a namespace, or of all: asked topic by topic."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from geminga.admin._namespaces import Namespaces
from geminga.admin._tenants import Tenants
from geminga.admin._topics import Topics
from geminga.admin.errors import AdminError, NotAvailableError, NotFoundError, UnreachableError
from geminga.app.handles.core.backlog_rows import BacklogRow, rows_of


class Listing(Protocol):
    """The calls that are used; :class:`geminga.admin.AdminClient` has them."""

    @property
    def tenants(self) -> Tenants: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def topics(self) -> Topics: ...


class Backlogs(NamedTuple):
    """What is told, and what is not."""

    rows: list[BacklogRow]
    #: Topics that nobody tells of now.
    untold: list[str]
    #: Tenants, namespaces and topics that may not be looked at, or failed -> why.
    refused: dict[str, str]


async def backlogs(admin: Listing, namespace: str = "") -> Backlogs:
    """Of a namespace, or (empty) of all that may be seen. Raises AdminError where there is nothing to look through."""
    refused: dict[str, str] = {}

    async def listed(kind: Namespaces | Topics, whose: str) -> list[str]:
        try:
            return [str(name) for name in await kind.list(whose)]
        except NotFoundError:
            return []  # deleted since it was listed
        except AdminError as error:
            refused[whose] = str(error)
            return []

    if namespace:
        topics = [str(topic) for topic in await admin.topics.list(namespace)]
    else:
        names = [name for tenant in await admin.tenants.list() for name in await listed(admin.namespaces, tenant)]
        topics = [topic for name in names for topic in await listed(admin.topics, name)]
    found = await asyncio.gather(*(_of_topic(admin, topic) for topic in topics))
    rows: list[BacklogRow] = []
    untold: list[str] = []
    for topic, each in zip(topics, found, strict=True):
        if each is None:
            untold.append(topic)
        elif isinstance(each, AdminError):
            refused[topic] = str(each)
        else:
            rows += each
    return Backlogs(rows, untold, refused)


async def _of_topic(admin: Listing, topic: str) -> list[BacklogRow] | AdminError | None:
    try:
        stats = await admin.topics.stats(topic, precise_backlog=True, backlog_size=True, earliest_time=True)
    except NotFoundError:
        return []  # deleted since it was listed
    except (NotAvailableError, UnreachableError):
        return None  # sent on to a broker that is gone, too: others tell of theirs
    except AdminError as error:
        return error
    return list(rows_of(topic, stats))
