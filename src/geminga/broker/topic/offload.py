"""The lake, of one topic: follows its policies, and looks now and then whether a ledger is to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from geminga.broker.policies.core.storage_rows import (
    OFFLOAD_DELETION_LAG,
    OFFLOAD_POLICIES,
    OFFLOAD_THRESHOLD,
    OFFLOAD_THRESHOLD_SECONDS,
)
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.model.errors import ConfigurationError
from geminga.model.position import Position
from geminga.runtime import get_logger
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.policies.config import PolicyConfig
    from geminga.lake.parquet import SchemaFacts
    from geminga.managed_ledger.offload.offloading import Offloading

#: Between two looks at each topic.
LOOK_S: Final = 30.0
_log = get_logger(__name__)


class Offload(TopicPart):
    """Where a driver is set, or where something was offloaded before. Topics of the broker's own stay on bookies."""

    __slots__ = ("_topic", "offloading", "refusal")

    name: ClassVar[str] = "offload"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.offloading: Offloading = topic.ledger.new_offloading(
            topic.services.runtime.rng, self._find_aborted, self._find_schema
        )
        # What is in the lake alone is in deduplication's snapshot: a lost file makes no sequence id unknown.
        self.offloading.before_leaving = topic.save_sequence_ids
        #: Why what is configured can not be followed; empty: it can.
        self.refusal = ""

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """See the class."""
        if topic.name.is_system:
            return False
        document = topic.rules[OFFLOAD_POLICIES]
        is_set = bool(topic.services.ledgers.config.offload_driver) or bool(document)
        return is_set or any(info.offload_context for info in topic.ledger.ledgers.infos)

    def policies_changed(self) -> None:
        """Follow the rules; what can not be followed is told, and nothing more is offloaded."""
        from geminga.broker.policies.core.offload import Older, offload_policy, offloaded_policy

        rules = self._topic.rules
        threshold, seconds = rules[OFFLOAD_THRESHOLD], rules[OFFLOAD_THRESHOLD_SECONDS]
        older = Older(
            None if threshold < 0 else threshold, None if seconds < 0 else seconds, rules[OFFLOAD_DELETION_LAG]
        )
        config = self._topic.services.ledgers.config
        try:
            policy = offload_policy(rules[OFFLOAD_POLICIES], older, config)
            self.refusal = ""
        except ConfigurationError as error:
            _log.warning("%s: nothing is offloaded: %s", self._topic.name, error)
            # What is offloaded already is kept on the bookies, and read, as they say all the same.
            policy, self.refusal = offloaded_policy(rules[OFFLOAD_POLICIES], older, config), f"{error}"
        self.offloading.policy = policy
        self._topic.ledger.reader.is_bookkeeper_first = policy.is_bookkeeper_first
        self.offloading.look_later()

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        """Some times a minute; a topic with nothing to do looks at its list and no further."""
        del config
        return LOOK_S

    def upkeep(self) -> None:
        """Offload what is due, and delete on bookies what has been in the lake for long enough."""
        if not self._topic.is_closing:
            self.offloading.look_later()

    async def close(self) -> None:
        """What is under way ends."""
        self.offloading.stop()

    def drop(self) -> None:
        """What is under way ends."""
        self.offloading.stop()

    async def delete(self) -> None:
        """What is under way ends; the files go with the ledgers."""
        self.offloading.stop()

    def stats(self) -> Stats:
        """How it stands."""
        offloading = self.offloading
        return {
            "driver": offloading.policy.driver,
            "root": offloading.policy.properties.get("root", ""),
            "lastError": self.refusal or offloading.last_error,
        }

    def _find_aborted(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes]) -> frozenset[int]:
        hides = self._topic.parts.hides
        if not hides:
            return frozenset()
        found: set[int] = set()
        for entry_id, entry in enumerate(entries, first_entry_id):
            metadata = peek_metadata(entry)
            if metadata is not None and any(hide(Position(ledger_id, entry_id), metadata) for hide in hides):
                found.add(entry_id)
        return frozenset(found)

    async def _find_schema(self, version: bytes) -> SchemaFacts | None:
        from geminga.broker.topic.offloaded_schema import find_schema

        find = self._topic.services.find_schema
        return await find_schema(find, self._topic.name, version) if find is not None else None
