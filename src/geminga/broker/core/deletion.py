"""What the broker deletes by itself, and what holds it. Pure.

One place for all of it: whoever deletes in the background asks here, or the core named here, at the moment of deletion
and with what is so then, and deletes under the version of the metadata that was read.

===================  =======================================  =========================================================
What goes            When                                     What holds it
===================  =======================================  =========================================================
topic                unused for as long as configured:        clients, writes under way, entries that may not be read
                     :func:`why_topic_stays`                  yet, subscriptions or compaction (or their backlog),
                                                              Readers, cursors of the broker itself that are behind,
                                                              retention in force, policies that can not be read
its policies,        with the topic, before it                everything that holds the topic; another topic of that
schemas                                                       name (a partition takes neither with it)
partitioned topic    with its last partition, if configured   any partition, also one that came before the mark
subscription         unused for longer than its expiry:       consumers, somebody who moves its cursor, a topic loaded
                     :func:`why_subscription_stays`           just now
ledger of a topic    ``managed_ledger.core.trim``             every durable cursor that is not past it, entries in it
                                                              that may not be read yet, retention in force (all of it
                                                              until the policies are read), being the open one
message, for a       stored longer ago than the time to live  being behind the read limit. It is acknowledged, and so
subscription         (``core.expiry``); a backlog quota of    leaves a backlog; it stays stored as long as trim holds it
                     that action is used up
===================  =======================================  =========================================================

Nothing else is deleted without somebody asking for it, but for what a crash has left behind (ledgers that no list
names) and what a newer one has replaced (cursor ledgers, snapshots). Rules are those of Apache Pulsar where it has one
(``PersistentTopic.checkGC``: a topic is left alone while its retention has not passed since its last use).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

#: ``brokerDeleteInactiveTopicsMode``: a subscription with nothing left to read does not keep its topic.
CAUGHT_UP_MODE: Final = "delete_when_subscriptions_caught_up"


class Hold(StrEnum):
    """Why something is not deleted now; the text is for the log."""

    SYSTEM = "it is the broker's own"
    CLOSING = "it is being closed already"
    CLIENTS = "clients are connected"
    WRITES = "something is being written"
    HELD_BACK = "entries may not be read yet"
    SUBSCRIPTIONS = "it has subscriptions"
    BACKLOG = "a subscription has not read everything"
    READER = "a Reader may come back"
    CURSOR = "a cursor of the broker itself is behind"
    RECENT = "it was used a short time ago"
    RETENTION = "retention is in force"
    KEPT = "topics that nobody uses are kept here"
    UNKNOWN = "its policies are not known"
    NEVER = "it never expires"
    REPLICATED = "it is replicated to other clusters"
    MOVING = "its cursor is being moved"


#: Reasons that are a use: they are as good as a client that came now.
USES: Final = frozenset(
    {Hold.CLIENTS, Hold.WRITES, Hold.HELD_BACK, Hold.SUBSCRIPTIONS, Hold.BACKLOG, Hold.READER, Hold.CURSOR}
)


class TopicFacts(NamedTuple):
    """What is so of a topic now."""

    #: Milliseconds since something used it (or it was loaded), by a clock that nobody sets.
    idle_ms: int
    #: Milliseconds since the newest of its closed ledgers was closed; None: there is none with entries.
    stored_ms_ago: int | None = None
    is_system: bool = False
    #: Connected producers and consumers.
    clients: int = 0
    #: Groups of entries that were not answered.
    writes: int = 0
    #: A part of the topic holds back entries that are stored: nobody has decided yet what becomes of them.
    held_back: bool = False
    #: Durable cursors of subscriptions, also of those that are just being made; compaction's counts as one.
    subscriptions: int = 0
    #: Subscriptions in memory: of Readers that are connected, or were and may come back.
    readers: int = 0
    #: Entries that the slowest subscription has not acknowledged.
    backlog: int = 0
    #: The same of durable cursors that are no subscriptions, but for what a cursor only keeps for the broker's own use.
    internal_backlog: int = 0


def why_topic_stays(
    facts: TopicFacts, *, mode: str, idle_min_ms: int, retention_ms: int | None, is_wanted: bool = True
) -> Hold | None:
    """Why an idle topic is not deleted; None: it goes.

    ``is_wanted``, ``mode`` and ``idle_min_ms``: ``inactiveTopicPolicies`` of the topic, its namespace or the broker.
    ``retention_ms``: what is in force, -1 without limit; None: not known.
    """
    if facts.is_system:
        return Hold.SYSTEM
    if facts.clients:
        return Hold.CLIENTS
    if facts.writes:
        return Hold.WRITES
    if facts.held_back:
        return Hold.HELD_BACK
    if facts.readers:
        return Hold.READER
    if facts.internal_backlog:
        return Hold.CURSOR
    if mode == CAUGHT_UP_MODE:
        if facts.backlog:
            return Hold.BACKLOG
    elif facts.subscriptions:
        return Hold.SUBSCRIPTIONS
    if not is_wanted:
        return Hold.KEPT
    if facts.idle_ms < idle_min_ms:
        return Hold.RECENT
    if retention_ms is None:
        return Hold.UNKNOWN
    if is_retained(facts.idle_ms, retention_ms):
        return Hold.RETENTION
    if facts.stored_ms_ago is not None and is_retained(facts.stored_ms_ago, retention_ms):
        return Hold.RETENTION
    return None


def is_retained(age_ms: int, retention_ms: int) -> bool:
    """Whether retention holds what is so old; -1 is without limit. As trim has it, whose size limit only shortens."""
    return retention_ms < 0 or age_ms < retention_ms


def system_retention(has_own_cursor: bool) -> tuple[int, int]:
    """Milliseconds and bytes for a topic of the broker's own: a cursor of its own says what is needed, if there is one.

    Without (Apache's brokers keep none on ``__change_events``) all of it is needed, as in Pulsar.
    """
    return (0, 0) if has_own_cursor else (-1, -1)


class SubscriptionFacts(NamedTuple):
    """What is so of a subscription now."""

    #: Milliseconds since its last consumer left, or it was made or moved, over restarts.
    idle_ms: int
    #: Milliseconds since its topic was loaded.
    loaded_ms: int
    is_durable: bool = True
    consumers: int = 0
    #: Somebody seeks, or deletes it.
    is_moving: bool = False
    #: Another cluster moves it: consumers that come over from there find it.
    is_replicated: bool = False


def why_subscription_stays(facts: SubscriptionFacts, *, expiry_ms: int, settle_ms: int) -> Hold | None:
    """Why a subscription does not expire; None: it goes. ``expiry_ms``: 0 is never.

    ``settle_ms``: how long after a topic was loaded its consumers may take to come back.
    """
    if expiry_ms <= 0 or not facts.is_durable:
        return Hold.NEVER
    if facts.is_replicated:
        return Hold.REPLICATED
    if facts.consumers:
        return Hold.CLIENTS
    if facts.is_moving:
        return Hold.MOVING
    if facts.loaded_ms < settle_ms or facts.idle_ms <= expiry_ms:
        return Hold.RECENT
    return None
