"""What entry filters need of a subscription, its reads and its consumers, which are above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.model import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Part
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.filters.judging import SubscriptionFilter
    from geminga.entry_filters.pipe import FilterBatch
    from geminga.managed_ledger import Entry, ManagedCursor
    from geminga.model.errors import EntryFilterError, StorageError

#: Gets the entries that are left of a read, or what is wrong.
Sifted = Callable[["Sequence[Entry] | StorageError"], None]
#: Judges entries that were read: answers later, and gives what calls that off.
Sift = Callable[["Sequence[Entry]", Sifted], Callable[[], None]]


class AsksFilters(Protocol):
    """The entry filters of a topic."""

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they are asked."""
        ...

    def ask(self, batch: FilterBatch, answered: Callable[[bytes | EntryFilterError], None]) -> Callable[[], None]:
        """``answered`` is called later, with a verdict for each entry or what is wrong; what is returned calls it
        off."""
        ...


class FilteredConsumer(Protocol):
    """A consumer, as filters are told of it."""

    @property
    def type(self) -> pb.CommandSubscribe.SubType:
        """Of its subscription."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What it said of itself."""
        ...


class FilterSettings(Protocol):
    """What of the configuration counts for a subscription."""

    @property
    def entry_filter_failure(self) -> str:
        """What is done when filters fail: ``pause`` or ``deliver``."""
        ...

    @property
    def entry_filter_rescheduled_delay_ms(self) -> int:
        """When they are asked again about what they postponed."""
        ...


class FilteredServices(Protocol):
    """Of the broker."""

    @property
    def config(self) -> FilterSettings:
        """Settings."""
        ...


class FilteredTopic(Protocol):
    """The topic of a subscription."""

    @property
    def name(self) -> TopicName:
        """Its name."""
        ...

    @property
    def hides(self) -> Sequence[Callable[[Position, pb.MessageMetadata], bool]]:
        """Whether an entry is never to be seen by readers."""
        ...


class AskedSubscription(Part, Protocol):
    """The subscription that filters are asked for."""

    #: Its filters, with what they said; None: it never had any.
    filter: SubscriptionFilter | None

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def topic(self) -> FilteredTopic:
        """Its topic."""
        ...

    @property
    def services(self) -> FilteredServices:
        """What it uses of the broker."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """What its maker noted with it."""
        ...


class FilteredSubscription(AskedSubscription, Protocol):
    """One with a cursor."""

    @property
    def cursor(self) -> ManagedCursor:
        """What it acknowledged."""
        ...

    def wake(self) -> None:
        """Dispatch if there are consumers."""
        ...


class SiftedReads(Protocol):
    """Reads that are judged before anybody gets them."""

    #: None: they are not.
    sift: Sift | None


class SiftedLog(SiftedReads, Protocol):
    """Those of the log."""

    def go_back_to(self, position: Position) -> None:
        """What was read from ``position`` on is read again."""
        ...
