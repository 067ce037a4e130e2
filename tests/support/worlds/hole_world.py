"""Brokers one after the other on the same memory storage and lake, of which a test takes ledgers away."""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from geminga import sim
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.topic.offload import Offload
from geminga.broker.topic.persistent import PersistentTopic
from geminga.lake.core.names import parse_ledger_file
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld
from support.worlds.lake_world import MemoryLakeStore
from support.worlds.rest_world import Answer, ask, rest_application

#: Ledgers of three entries, which leave for the lake alone as soon as somebody looks.
LAKE_LEDGERS = ManagedLedgerConfig(
    max_entries_per_ledger=3,
    min_rollover_minutes=0,
    offload_driver="filesystem",
    offload_directory="/lake",
    offload_threshold_bytes=0,
    offload_deletion_lag_ms=0,
)
#: The same, and they stay on the bookies.
BOOKIE_LEDGERS = ManagedLedgerConfig(max_entries_per_ledger=3, min_rollover_minutes=0)
QUIET: dict[str, Any] = {"keep_alive_interval_s": 1_000_000, "delete_inactive_topics": False}
PATH = "/admin/v2/persistent/public/default/topic"


class Ground:
    """What outlives a broker."""

    def __init__(self, bookies: int = 1) -> None:
        self.server = MemoryMetadata()
        self.bookies = {f"bookie-{number}": MemoryBookie() for number in range(1, bookies + 1)}
        self.lake = MemoryLakeStore()
        self._away: dict[str, bytes] = {}

    def lake_paths(self) -> dict[int, str]:
        """Files of ledgers in the lake."""
        named = ((parse_ledger_file(path.rpartition("/")[2]), path) for path in self.lake.files)
        return {name.ledger_id: path for name, path in named if name is not None}

    def take_file(self, ledger_id: int) -> None:
        """Its file is not in the lake any more."""
        path = self.lake_paths()[ledger_id]
        self._away[path] = self.lake.files.pop(path)

    def bring_files(self) -> None:
        """Those that were taken are back."""
        self.lake.files.update(self._away)

    def take_lake(self) -> None:
        """Nothing can be read there now."""
        self.lake.fail["read"] = OSError(errno.EIO, "Input/output error")

    def bring_lake(self) -> None:
        """It can again."""
        self.lake.fail.clear()

    def lose_ledger(self, ledger_id: int) -> None:
        """Every bookie has lost it, and knows that it never had it."""
        for bookie in self.bookies.values():
            bookie._ledgers.pop(ledger_id, None)


class HoleBroker(BrokerWorld):
    """A broker on that ground."""

    def __init__(self, ground: Ground, runtime, config: BrokerConfig, ledger_config: ManagedLedgerConfig) -> None:
        self.ground = ground
        super().__init__(runtime, config, ledger_config, server=ground.server, lake_store=ground.lake)
        self.rest = rest_application(self.broker)

    def _bookies(self) -> Mapping[str, MemoryBookie]:
        return self.ground.bookies

    async def topic(self) -> PersistentTopic:
        """The topic, loaded."""
        topic = await self.broker.registry.get(TopicName.parse(TOPIC), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic

    async def offload(self) -> list[int]:
        """Send what can go to the lake; ids of what is there alone then."""
        topic = await self.topic()
        part = topic.parts.find(Offload)
        assert part is not None
        await part.offloading.look()
        return [info.ledger_id for info in topic.ledger.ledgers.infos if info.is_offloaded]

    async def ask(self, method: str, what: str, body: object = None) -> Answer:
        """The admin REST, of the topic."""
        return await ask(self.rest, method, f"{PATH}{what}", json.dumps(body).encode())

    async def get(self, what: str) -> Any:
        """The same, a document."""
        answer = await self.ask("GET", what)
        assert answer.status == 200, answer
        return json.loads(answer.body)


Life = Callable[[HoleBroker], Awaitable[None]]


def run_lives(
    *lives: Life | tuple[Life, dict[str, Any]],
    ground: Ground | None = None,
    ledger_config: ManagedLedgerConfig = LAKE_LEDGERS,
    **settings: Any,
) -> None:
    """One broker after another; all are killed but the last, which is stopped. A life may have settings of its own."""
    ground = ground or Ground()

    async def main(world: sim.SimWorld) -> None:
        node = world.node("broker")
        for number, entry in enumerate(lives, 1):
            life, own = entry if isinstance(entry, tuple) else (entry, {})
            is_last = number == len(lives)

            async def on_node(
                node: sim.SimNode, life: Life = life, own: dict[str, Any] = own, is_last: bool = is_last
            ) -> None:
                config = BrokerConfig(**{**QUIET, **settings, **own})
                broker = HoleBroker(ground, node.runtime, config, ledger_config)
                await broker.start()
                await life(broker)
                if is_last:
                    await broker.stop()

            node.start()
            await node.run(on_node)
            world.crash(node)

    sim.run(main)
