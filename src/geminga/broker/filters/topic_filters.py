"""The entry filters of one topic, for all its subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.broker.filters.pool import FilterPool
    from geminga.entry_filters.pipe import FilterBatch
    from geminga.model.errors import EntryFilterError


class TopicFilters:
    """Names, and the processes of the broker that ask them."""

    __slots__ = ("_pool", "names")

    def __init__(self, names: tuple[str, ...], pool: FilterPool) -> None:
        #: In the order in which they are asked.
        self.names = names
        self._pool = pool

    def ask(self, batch: FilterBatch, answered: Callable[[bytes | EntryFilterError], None]) -> Callable[[], None]:
        """As :meth:`geminga.broker.filters.pool.FilterPool.ask`."""
        return self._pool.ask(batch, answered)
