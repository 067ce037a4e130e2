"""Entry filters, loaded with the first topic that has some.

As in Pulsar the broker's own (``entryFilterNames``) hold for every topic; with ``allowOverrideEntryFilters`` those of a
topic, else of its namespace, take their place where they name any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.policies.core.delivery_rows import ENTRY_FILTERS
from geminga.runtime import Part, Runtime, SparseWarnings, get_logger

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.filters.pool import FilterPool
    from geminga.broker.filters.ports import AsksFilters
    from geminga.broker.policies.rules import TopicRules
    from geminga.model.topic_name import TopicName
    from geminga.runtime.child import LaunchesChildren

#: Without it those of namespaces and topics do not count.
_OVERRIDE: Final = "allowOverrideEntryFilters is false"
_log = get_logger(__name__)


class LateFilters:
    """See the module."""

    __slots__ = ("_config", "_is_closed", "_part", "_runtime", "_warnings", "launch", "pool")

    def __init__(self, runtime: Runtime, config: BrokerConfig, part: Part) -> None:
        self._runtime = runtime
        self._config = config
        self._part = part
        self._is_closed = False
        self._warnings = SparseWarnings(_log, runtime.clock.monotonic)
        #: What starts their processes; None: this machine does.
        self.launch: LaunchesChildren | None = None
        #: Their processes; None: no topic ever had filters.
        self.pool: FilterPool | None = None

    def of(self, name: TopicName, rules: TopicRules, before: AsksFilters | None) -> AsksFilters | None:
        """Those of a topic that had ``before``, the same while their names are; None: it has none."""
        config = self._config
        text = rules[ENTRY_FILTERS] if config.allow_override_entry_filters else ",".join(config.entry_filter_names)
        if not config.allow_override_entry_filters and (ignored := rules[ENTRY_FILTERS]) not in (None, text):
            self._warnings.warn(f"{name}: its policy {ignored!r} of entry filters does not hold: {_OVERRIDE}", "policy")
        if not text or self._is_closed:
            return None
        from geminga.broker.filters.topic_filters import TopicFilters
        from geminga.entry_filters.names import names_of

        names = names_of(text)
        if before is not None and before.names == names:
            return before
        pool = self._use()
        # Whoever names them anew wants them asked now.
        pool.troubles.answered(names)
        return TopicFilters(names, pool) if names else None

    def counts(self) -> dict[str, float]:
        """For the metrics; nothing while no topic ever had filters."""
        pool = self.pool
        if pool is None:
            return {}
        return {
            "geminga_entry_filter_processes": pool.process_count,
            "geminga_entry_filter_waiting_batches": pool.waiting_count,
            "geminga_entry_filter_batches_total": pool.batches,
            "geminga_entry_filter_starts_total": pool.starts,
            "geminga_entry_filter_cut_off_total": pool.cut_off,
            "geminga_entry_filter_failing": len(pool.troubles.all()),
        }

    async def close(self) -> None:
        """End the processes."""
        self._is_closed = True
        if self.pool is not None:
            await self.pool.close()

    def _use(self) -> FilterPool:
        if self.pool is None:
            from geminga.broker.filters.pool import FilterPool
            from geminga.runtime.child import launch

            self.pool = FilterPool(self._config, self.launch or launch, self._runtime.clock.monotonic, self._part)
        return self.pool
