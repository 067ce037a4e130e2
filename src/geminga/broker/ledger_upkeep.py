"""Upkeep of managed ledgers: retention that has run out, and ledgers that a crash left behind.

Consumed ledgers are trimmed when a cursor leaves them; those that retention held then are looked at here, every
``retentionCheckIntervalInSeconds``. Ledgers that were made but never entered a list are collected once after the
start and then daily. One timer each for all topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.timers import Timers
from geminga.broker.topic import PersistentTopic
from geminga.model.errors import GemingaError
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.broker.service import Broker

_log = get_logger(__name__)

#: Seconds from the start to the first look for orphan ledgers: not while clients wait for their topics.
ORPHANS_FIRST_AFTER_S: Final = 300
#: Seconds between two looks for orphan ledgers.
ORPHANS_INTERVAL_S: Final = 24 * 3600


class LedgerUpkeep:
    """See the module."""

    __slots__ = ("_broker", "_timers")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers = Timers()

    def start(self) -> None:
        """Begin; the first look comes after an interval."""
        self._timers.repeat("trim ledgers", self._broker.config.retention_check_interval_s, self.trim_all)
        self._timers.repeat("collect orphan ledgers", ORPHANS_FIRST_AFTER_S, self.collect_orphans)

    def close(self) -> None:
        """Stop."""
        self._timers.close()

    async def trim_all(self) -> float:
        """Trim every loaded topic that has more than one ledger; seconds to the next time."""
        for topic in list(self._broker.topics.values()):
            if isinstance(topic, PersistentTopic) and not topic.is_closing and len(topic.ledger.ledgers) > 1:
                try:
                    await topic.ledger.trim()
                except GemingaError as error:
                    _log.warning("%s could not be trimmed: %s", topic.name, error)
        return self._broker.config.retention_check_interval_s

    async def collect_orphans(self) -> float:
        """Delete ledgers that nothing names; seconds to the next time."""
        try:
            deleted = [
                *await self._broker.ledgers.collect_orphan_ledgers(),
                *await self._broker.schemas.store.collect_orphan_ledgers(),
            ]
        except GemingaError as error:
            _log.warning("orphan ledgers could not be collected: %s", error)
        else:
            if deleted:
                _log.info("deleted %d ledgers that a crash had left behind", len(deleted))
        return ORPHANS_INTERVAL_S
