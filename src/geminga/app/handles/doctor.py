"""Asks a broker's admin REST for what :mod:`geminga.app.handles.core.causes` concludes from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from geminga.admin._brokers import Brokers
from geminga.admin._topics import Topics
from geminga.admin._transactions import Transactions
from geminga.admin.errors import (
    ForbiddenError,
    NotAvailableError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
    UnreachableError,
)
from geminga.app.handles.core.alike_causes import AlikeFacts
from geminga.app.handles.core.causes import DoctorFacts, Finding, findings_of
from geminga.model import TopicName

Q = TypeVar("Q")

#: What a broker without transactions, or towards who has fewer rights, answers to a question about them.
_LEFT_OUT = (
    NotBuiltError,
    NotAvailableError,
    ForbiddenError,
    UnauthorizedError,
    NotFoundError,
    PreconditionFailedError,
    UnreachableError,
)


class DoctorCalls(Protocol):
    """The calls that are used; :class:`geminga.admin.AdminClient` has them."""

    @property
    def topics(self) -> Topics: ...
    @property
    def transactions(self) -> Transactions: ...


async def examine(admin: DoctorCalls, topic: str, subscription: str = "", *, now_ms: int) -> dict[str, list[Finding]]:
    """Findings by topic, of a partitioned one by partition; ``now_ms``: since the epoch.

    Raises AdminError for a topic, or ``subscription``, that is not there, InvalidTopicNameError.
    """
    name = TopicName.parse(topic)
    partitions = 0
    try:
        partitions = int((await admin.topics.partitioned_metadata(str(name))).get("partitions", 0))
    except NotAvailableError:
        pass  # its statistics say why
    names = [f"{name}-partition-{number}" for number in range(partitions)] or [str(name)]
    found = {}
    for each in names:
        facts = await facts_of(admin, each, now_ms=now_ms)
        known = (facts.stats or {}).get("subscriptions", {})
        if subscription and facts.stats is not None and subscription not in known:
            there = ", ".join(sorted(known)) or "none"
            raise NotFoundError(each, 404, f"there is no subscription {subscription}; there are: {there}")
        found[each] = findings_of(facts, subscription)
    return found


class AlikeCalls(Protocol):
    """The calls that :func:`alike_facts` uses; :class:`geminga.admin.AdminClient` has them."""

    @property
    def brokers(self) -> Brokers: ...
    @property
    def topics(self) -> Topics: ...


async def alike_facts(admin: AlikeCalls, *, now_ms: int) -> AlikeFacts:
    """How it stands with configuration that a topic keeps alike. Raises AdminError, NotFoundError where none does."""
    state = await admin.brokers.synchronization()
    try:
        stats = await admin.topics.stats(state["topic"], precise_backlog=True)
    except (NotAvailableError, NotFoundError, UnreachableError) as error:
        return AlikeFacts(now_ms, state, unserved=error.reason)
    return AlikeFacts(now_ms, state, stats)


async def facts_of(admin: DoctorCalls, topic: str, *, now_ms: int) -> DoctorFacts:
    """What is known of a topic without partitions, or of one partition. Raises AdminError."""
    try:
        stats = await admin.topics.stats(topic, precise_backlog=True)
    except (NotAvailableError, UnreachableError) as error:
        # Who was asked answers: it is the broker that it sends on to which does not.
        return DoctorFacts(topic, now_ms, unserved=error.reason)
    place = topic.partition("://")[2]
    internal, quotas, transactions, buffer = await asyncio.gather(
        _known(admin.topics.internal_stats, topic),
        _known(partial(admin.topics.backlog_quotas, applied=True), topic),
        _known(admin.transactions.slow, 0),
        _known(admin.transactions.buffer_stats, place),
    )
    return DoctorFacts(
        topic,
        now_ms,
        stats,
        "",
        internal or {},
        quotas or {},
        transactions or {},
        buffer or {},
    )


async def _known(ask: Callable[[Q], Awaitable[Any]], about: Q) -> Any:  # noqa: ANN401  (documents of REST)
    """None where the broker has no answer for who asks. Who is cut off before it began has asked nothing."""
    try:
        return await ask(about)
    except _LEFT_OUT:
        return None
