"""What a subscription still has to read, counted by looking at it.

Within the limits of the configuration, in turns of the loop, and without moving anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from geminga.managed_ledger import Entry
from geminga.model import Position
from geminga.runtime import next_turn
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription


class BacklogAnalysis(NamedTuple):
    """What was found as far as it was looked."""

    #: Entries of messages, and the messages in them: of a batch all, also those that are acknowledged by themselves.
    entries: int = 0
    messages: int = 0
    #: Entries of the broker's own, or that nobody can read.
    markers: int = 0
    #: Of the entries looked at, markers too; None: there was none.
    first: Position | None = None
    last: Position | None = None
    #: A limit was reached, and more entries lie behind, from ``further`` on.
    is_aborted: bool = False
    further: Position | None = None
    #: Where they are, of a batch with the bit set of the messages that are not acknowledged by themselves, 0: all are
    #: not; as far as it was asked for.
    places: tuple[tuple[Position, int], ...] = ()

    def with_more(self, entries: Sequence[Entry]) -> BacklogAnalysis:
        """These entries too, which lie behind."""
        count, messages, markers = self.entries, self.messages, self.markers
        for entry in entries:
            metadata = peek_metadata(entry.data)
            if metadata is None or metadata.marker_type:
                markers += 1
            else:
                count += 1
                messages += batch_size(metadata, len(entry.data))
        first = entries[0].position if entries and self.first is None else self.first
        last = entries[-1].position if entries else self.last
        return self._replace(entries=count, messages=messages, markers=markers, first=first, last=last)


def _is_message(entry: Entry) -> bool:
    metadata = peek_metadata(entry.data)
    return metadata is not None and not metadata.marker_type


async def analyze(
    subscription: Subscription, start: Position | None = None, *, places: bool = False
) -> BacklogAnalysis:
    """Count what is not acknowledged, from ``start`` on; None: all of it. ``places``: tell where it is. Raises
    StorageError."""
    config, clock = subscription.services.config, subscription.services.runtime.clock
    cursor, ledger = subscription.cursor, subscription.topic.ledger
    found = BacklogAnalysis()
    left, ends_s = config.backlog_scan_entries_max, clock.monotonic() + config.backlog_scan_ms_max / 1000
    position = ledger.ledgers.next_position(cursor.mark_delete_position)
    if start is not None:
        position = max(position, start)
    while ledger.ledgers.count_between(position, ledger.extent.readable_position):
        if left <= 0 or clock.monotonic() > ends_s:
            return found._replace(is_aborted=True, further=position)
        most = min(left, config.dispatcher_max_read_batch_size)
        entries = await ledger.reader.read_range(position, most, config.dispatcher_max_read_size_bytes)
        if not entries:
            break  # trimmed meanwhile
        # Those that are acknowledged in between count for the time alone, as in Pulsar.
        waiting = await cursor.unacknowledged(entries)
        found = found.with_more(waiting)
        if places:
            batches = cursor.state.batches
            here = [(entry.position, batches.get(*entry.position)) for entry in waiting if _is_message(entry)]
            found = found._replace(places=(*found.places, *here))
        left -= len(waiting)
        position = ledger.ledgers.next_position(entries[-1].position)
        await next_turn()  # what is in memory is read within the call
    return found
