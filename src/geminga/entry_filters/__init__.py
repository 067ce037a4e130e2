"""What is written for entry filters: Python callables that say which entries a subscription gets.

A filter is called with one :class:`FilteredEntry` and answers :data:`ACCEPT`, :data:`REJECT` or :data:`RESCHEDULE`::

    from geminga.entry_filters import ACCEPT, REJECT, FilteredEntry, FilterVerdict


    def only_europe(entry: FilteredEntry) -> FilterVerdict:
        return ACCEPT if entry.properties.get("region") == "eu" else REJECT

It is found by its name: of an entry point of the group :data:`ENTRY_POINTS` of an installed package, or
``module:callable`` of a file in the broker's ``entryFiltersDirectory``. It runs in processes of its own
(:mod:`.worker`), never in the broker's. docs/entry-filters.md says what holds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

__all__ = [
    "ACCEPT",
    "ENTRY_POINTS",
    "REJECT",
    "RESCHEDULE",
    "EntryFilter",
    "FilterTarget",
    "FilterVerdict",
    "FilteredEntry",
]

#: The group of entry points that declare filters.
ENTRY_POINTS: Final = "geminga.entry_filters"


class FilterVerdict(Enum):
    """What becomes of an entry, for one subscription; the values are those on the pipe."""

    #: It is sent.
    ACCEPT = 0
    #: It is never sent, and counts as acknowledged.
    REJECT = 1
    #: It is not sent now: the filters are asked again after a while.
    RESCHEDULE = 2


#: The entry is sent.
ACCEPT: Final = FilterVerdict.ACCEPT
#: It is never sent to this subscription.
REJECT: Final = FilterVerdict.REJECT
#: It is asked about again after a while.
RESCHEDULE: Final = FilterVerdict.RESCHEDULE


@dataclass(frozen=True, slots=True)
class FilterTarget:
    """For whom an entry is: one for all entries of a batch."""

    #: The full name of the topic, or of its partition.
    topic: str
    subscription: str
    #: ``Exclusive``, ``Shared``, ``Failover`` or ``Key_Shared``.
    subscription_type: str
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    #: The metadata of each connected consumer that may get the entry: of Exclusive and Failover of the active one
    #: alone. Who of several gets it is decided after the filters.
    consumers: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FilteredEntry:
    """An entry as filters see it: its metadata, not its payload. Of a batch they are those of all its messages."""

    target: FilterTarget
    ledger_id: int
    entry_id: int
    #: Properties of the message; a batch has none but those its producer gave the batch as a whole.
    properties: Mapping[str, str]
    #: Text as it was sent: what is no text is base64, and :attr:`is_key_base64` says so.
    key: str | None
    is_key_base64: bool
    ordering_key: bytes | None
    #: Milliseconds since the epoch.
    publish_time_ms: int
    #: Milliseconds since the epoch; 0: none was given.
    event_time_ms: int
    #: When it is to be delivered, milliseconds since the epoch; 0: at once.
    deliver_at_ms: int
    producer_name: str
    sequence_id: int
    #: ``NONE``, ``LZ4``, ``ZLIB``, ``ZSTD`` or ``SNAPPY``.
    compression: str
    #: Messages of the entry.
    batch_size: int
    #: As it is stored; None: none was given.
    schema_version: bytes | None
    #: The cluster it was copied from; empty: it was published here.
    replicated_from: str
    is_encrypted: bool

    @property
    def topic(self) -> str:
        """As :attr:`FilterTarget.topic`."""
        return self.target.topic

    @property
    def subscription(self) -> str:
        """As :attr:`FilterTarget.subscription`."""
        return self.target.subscription


#: A filter: it is called with one entry, in a process of its own, and may raise anything.
EntryFilter = Callable[[FilteredEntry], FilterVerdict]
