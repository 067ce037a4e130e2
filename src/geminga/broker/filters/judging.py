"""Entry filters of one subscription: what is asked, what they said, and what is done when they say nothing.

Asked is about every entry that was read and that consumers may get: not about markers, what can not be parsed, and
what a part of the topic hides. Loaded with the first filter; without any there is no object, and one test a read.

If filters fail, by default nothing is sent (``gemingaEntryFilterFailure=pause``): what was read is read again when
they are asked again. Loss and delivery of what a filter would have rejected are both out of the question then. With
``deliver`` entries pass that were not judged; they are counted, and the log says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.core.filter_troubles import wait_ms
from geminga.broker.filters.ports import AskedSubscription, AsksFilters, FilteredConsumer
from geminga.entry_filters import FilterTarget, FilterVerdict
from geminga.entry_filters.pipe import AskedEntry, FilterBatch
from geminga.model.errors import EntryFilterError
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import metadata_bytes, split_entry, text_of
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry

#: Consumers whose metadata filters are told.
CONSUMERS_TOLD_MAX: Final = 100
#: What ``gemingaEntryFilterFailure`` says where filters that fail are passed over.
DELIVER: Final = "deliver"
_ACCEPT: Final = FilterVerdict.ACCEPT.value
_REJECT: Final = FilterVerdict.REJECT.value

_log = get_logger(__name__)


class Judged(NamedTuple):
    """Entries of one read, the verdict on each, and the messages of each; 0: nobody was asked about it."""

    entries: Sequence[Entry]
    verdicts: bytes
    messages: Sequence[int]
    #: Nobody judged them: the filters failed, and are passed over.
    is_unfiltered: bool = False


def _texts(pairs: Mapping[str, str]) -> dict[str, str]:
    return {text_of(key): text_of(value) for key, value in pairs.items()}


class SubscriptionFilter:
    """See the module. Outlives consumers, for its counts."""

    __slots__ = (
        "_failures",
        "_subscription",
        "accepted",
        "error",
        "filters",
        "processed",
        "rejected",
        "rescheduled",
        "unfiltered",
    )

    def __init__(self, subscription: AskedSubscription, filters: AsksFilters) -> None:
        self._subscription = subscription
        #: Who is asked.
        self.filters = filters
        #: Messages, since the topic was loaded.
        self.processed = self.accepted = self.rejected = self.rescheduled = 0
        #: Messages that were delivered although the filters failed.
        self.unfiltered = 0
        #: Why dispatch waits, or entries pass unfiltered; None: the filters answered the last time.
        self.error: EntryFilterError | None = None
        #: How often in a row they failed.
        self._failures = 0

    @classmethod
    def of(cls, subscription: AskedSubscription, filters: AsksFilters) -> SubscriptionFilter:
        """The subscription's, which asks ``filters`` from now on; made with the first."""
        if subscription.filter is None:
            subscription.filter = cls(subscription, filters)
        subscription.filter.follow(filters)
        return subscription.filter

    @property
    def is_held(self) -> bool:
        """Whether nothing is sent while the filters fail."""
        return self._subscription.services.config.entry_filter_failure != DELIVER

    def follow(self, filters: AsksFilters) -> None:
        """Ask these from now on."""
        if filters is not self.filters:
            self.filters = filters
            self.error, self._failures = None, 0

    def ask(
        self,
        entries: Sequence[Entry],
        consumers: Sequence[FilteredConsumer],
        done: Callable[[Judged | EntryFilterError], None],
    ) -> Callable[[], None]:
        """Ask about ``entries``, for ``consumers``; ``done`` is called later. What is returned calls it off."""
        questions: list[AskedEntry] = []
        messages: list[int] = []
        for entry in entries:
            count = self._messages_of(entry)
            messages.append(count)
            if count:
                questions.append(AskedEntry(entry.ledger_id, entry.entry_id, metadata_bytes(entry.data)))

        if not questions:
            # Markers alone: no process is asked, and none need answer.
            return asyncio.get_running_loop().call_soon(done, Judged(entries, bytes(len(entries)), messages)).cancel

        def answered(answer: bytes | EntryFilterError) -> None:
            done(self._judged(entries, messages, answer))

        size_bytes = sum(len(entry.data) for entry in entries)
        batch = FilterBatch(self.filters.names, self._target(consumers), questions, size_bytes)
        return self.filters.ask(batch, answered)

    def count(self, verdict: int, messages: int) -> None:
        """A verdict was followed."""
        self.processed += messages
        if verdict == _ACCEPT:
            self.accepted += messages
        elif verdict == _REJECT:
            self.rejected += messages
        else:
            self.rescheduled += messages

    def _messages_of(self, entry: Entry) -> int:
        """How many messages an entry has, for filters; 0: it is none of theirs."""
        metadata, _ = split_entry(entry.data)
        if metadata is None or metadata.marker_type:
            return 0
        position = entry.position
        if any(hide(position, metadata) for hide in self._subscription.topic.hides):
            return 0
        count = metadata.num_messages_in_batch
        return count if count == 1 else batch_size(metadata, len(entry.data))

    def _target(self, consumers: Sequence[FilteredConsumer]) -> FilterTarget:
        subscription = self._subscription
        return FilterTarget(
            topic=str(subscription.topic.name),
            subscription=subscription.name,
            subscription_type=pb.CommandSubscribe.SubType.Name(consumers[0].type) if consumers else "",
            subscription_properties=dict(subscription.properties),
            consumers=tuple(_texts(consumer.metadata) for consumer in consumers[:CONSUMERS_TOLD_MAX]),
        )

    def _judged(
        self, entries: Sequence[Entry], messages: Sequence[int], answer: bytes | EntryFilterError
    ) -> Judged | EntryFilterError:
        if not isinstance(answer, EntryFilterError):
            if self.error is not None:
                self._tell("answer again")
            self.error, self._failures = None, 0
            verdicts = iter(answer)
            return Judged(entries, bytes(next(verdicts) if count else _ACCEPT for count in messages), messages)
        self._failures += 1
        if not answer.retry_ms:
            # It raised: other entries of other subscriptions need not.
            answer = EntryFilterError(str(answer), wait_ms(self._failures))
        self.error = answer
        if self.is_held:
            self._tell(f"fail, nothing is sent, they are asked again in {answer.retry_ms} ms: {answer}")
            return answer
        if self._failures == 1:
            self._tell(f"fail, messages are delivered UNFILTERED: {answer}")
        self.unfiltered += sum(messages)
        return Judged(entries, bytes(len(entries)), messages, is_unfiltered=True)

    def _tell(self, what: str) -> None:
        subscription = self._subscription
        names = ", ".join(self.filters.names)
        _log.warning("%s subscription %s: entry filters %s %s", subscription.topic.name, subscription.name, names, what)
