"""Upkeep of managed ledgers: retention that has run out, and ledgers that a crash left behind.

Consumed ledgers are trimmed when a cursor leaves them; those that retention held then are looked at here, every
``retentionCheckIntervalInSeconds``. Ledgers that were made but never entered a list (``orphan_ledgers``) are looked for
after the start and then daily, and again an hour after a look that found some; so are empty parents of namespaces that
are gone (``resources.remains``). One timer each for all topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.upkeep.timers import Timers
from geminga.model.errors import GemingaError, StorageError
from geminga.runtime import Contained, Part, Runtime, get_logger

if TYPE_CHECKING:
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.topic.base import Topic
    from geminga.broker.upkeep.orphan_ledgers import OrphanLedgers
    from geminga.broker.upkeep.ports import LoadedTopics
    from geminga.managed_ledger import ManagedLedgerFactory
    from geminga.metadata.ports import MetadataStore

_log = get_logger(__name__)

#: Seconds from the start to the first look for orphan ledgers: not while clients wait for their topics.
ORPHANS_FIRST_AFTER_S: Final = 300
#: Seconds between two attempts at lake files that could not be deleted.
LAKE_DELETIONS_S: Final = 600
#: Seconds between two looks at what a topic's load could not read.
GAPS_S: Final = 30
#: Seconds between two looks for orphan ledgers while there are none.
ORPHANS_INTERVAL_S: Final = 24 * 3600
#: Seconds from a look that left some waiting, or failed, to the next: over an hour.
ORPHANS_AGAIN_AFTER_S: Final = 3600 + 60


class LedgerUpkeep:
    """See the module."""

    __slots__ = ("_config", "_ledgers", "_metadata", "_orphans", "_runtime", "_timers", "_topics")

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        ledgers: ManagedLedgerFactory,
        config: BrokerConfig,
        topics: LoadedTopics,
        *,
        part: Part,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._ledgers = ledgers
        self._config = config
        self._topics = topics
        self._timers = Timers(part)
        self._orphans: OrphanLedgers | None = None

    @property
    def orphans(self) -> OrphanLedgers:
        """The looks for ledgers that nothing names; loaded with the first: a start need not pay for it."""
        if self._orphans is None:
            from geminga.broker.upkeep.orphan_ledgers import OrphanLedgers

            self._orphans = OrphanLedgers(
                self._runtime,
                self._metadata,
                self._ledgers.bookkeeper,
                at_once_max=self._config.orphan_ledgers_deleted_max,
            )
        return self._orphans

    def start(self) -> None:
        """Begin; the first look comes after an interval."""
        self._timers.repeat("trim ledgers", self._config.retention_check_interval_s, self.trim_all)
        self._timers.repeat("look at unreadable ledgers", GAPS_S, self.look_at_gaps)
        self._timers.repeat("delete lake files", LAKE_DELETIONS_S, self.delete_lake_files)
        self._timers.repeat("collect orphan ledgers", ORPHANS_FIRST_AFTER_S, self.collect_orphans)

    def close(self) -> None:
        """Stop."""
        self._timers.close()

    async def trim_all(self) -> float:
        """Trim every loaded topic that has more than one ledger; seconds to the next time."""
        if self._topics:
            await self._trim(list(self._topics.values()))
        return self._config.retention_check_interval_s

    @staticmethod
    async def _trim(topics: Sequence[Topic]) -> None:
        from geminga.broker.topic.persistent import PersistentTopic

        for topic in topics:
            if isinstance(topic, PersistentTopic) and not topic.is_closing and len(topic.ledger.ledgers) > 1:
                try:
                    with Contained(topic, "a trim"):
                        await topic.ledger.trimmer.trim()
                except GemingaError as error:
                    _log.warning("%s could not be trimmed: %s", topic.name, error)

    async def look_at_gaps(self) -> float:
        """Load topics anew whose load had to pass over entries that can be read by now; seconds to the next time."""
        if self._topics:
            await self._reload(list(self._topics.values()))
        return GAPS_S

    async def _reload(self, topics: Sequence[Topic]) -> None:
        from geminga.broker.topic.persistent import PersistentTopic

        for topic in topics:
            if isinstance(topic, PersistentTopic) and topic.ledger.stored.gaps and not topic.is_closing:
                try:
                    with Contained(topic, "a look at what its load could not read"):
                        if await self._ledgers.is_closed_again(topic.ledger):
                            _log.warning("%s: all of it can be read again, it is loaded anew", topic.name)
                            await topic.services.unload(topic.name)
                except GemingaError as error:
                    _log.warning("%s is not loaded anew now: %s", topic.name, error)

    async def delete_lake_files(self) -> float:
        """Delete the lake files that could not be deleted when their ledgers went; seconds to the next time."""
        try:
            await self._ledgers.retry_lake_deletions()
        except StorageError as error:
            _log.warning("lake files are deleted later: %s", error)
        return LAKE_DELETIONS_S

    async def collect_orphans(self) -> float:
        """One look for ledgers that nothing names, and for what is left of namespaces; seconds to the next."""
        from geminga.broker.resources.remains import sweep_parents

        try:
            await sweep_parents(self._metadata)
            await self.orphans.look()
        except StorageError as error:
            _log.warning("no orphan ledger is deleted, for not everything can be read: %s", error)
            return ORPHANS_AGAIN_AFTER_S
        return ORPHANS_AGAIN_AFTER_S if self.orphans.last.waiting else ORPHANS_INTERVAL_S
