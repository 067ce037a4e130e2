"""A transaction coordinator on a log, with participants that are sometimes deaf, one process after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga.model.errors import GemingaError, TopicNotFoundError, UnavailableError
from geminga.model.txn_id import TxnId, TxnSubscription
from geminga.sim import SimWorld
from geminga.transaction.coordinator import CoordinatorConfig, TransactionCoordinator
from geminga.transaction.ports import RecordLog


class Heard:
    """Participants: what each was told, and for how many calls it is deaf yet."""

    def __init__(self) -> None:
        self.told: dict[tuple[TxnId, str], set[bool]] = {}
        self.calls = 0
        self.deaf: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.watermarks: list[int] = []
        #: Who does not answer until that is set.
        self.silent: dict[str, asyncio.Event] = {}

    async def end_on_partition(self, txn_id: TxnId, topic: str, *, commit: bool, low_watermark: int) -> None:
        self.calls += 1
        self.watermarks.append(low_watermark)
        if topic in self.silent:
            await self.silent[topic].wait()
        if topic in self.deleted:
            raise TopicNotFoundError(topic)
        if self.deaf.get(topic, 0):
            self.deaf[topic] -= 1
            raise UnavailableError(f"{topic} is deaf")
        self.told.setdefault((txn_id, topic), set()).add(commit)

    async def end_on_subscription(
        self, txn_id: TxnId, subscription: TxnSubscription, *, commit: bool, low_watermark: int
    ) -> None:
        await self.end_on_partition(
            txn_id, f"{subscription.topic}/{subscription.subscription}", commit=commit, low_watermark=low_watermark
        )


class CoordinatorWorld:
    """See the module; ``open_log`` gives the log as a new process finds it."""

    def __init__(
        self, world: SimWorld, open_log: Callable[[], Awaitable[RecordLog]], config: CoordinatorConfig | None = None
    ) -> None:
        self.world = world
        self.runtime = world.node("broker").runtime
        self.heard = Heard()
        self.lost: list[GemingaError] = []
        self._open_log = open_log
        self._config = config or CoordinatorConfig()

    async def open(self) -> TransactionCoordinator:
        """As after a kill of the process before."""
        self.log = await self._open_log()
        coordinator = TransactionCoordinator(
            3,
            self.log,
            self.heard,
            clock=self.runtime.clock,
            rng=self.runtime.rng,
            config=self._config,
            part=self,
            lost=self.lost.append,
        )
        await coordinator.recover()
        return coordinator

    def broke(self, what: str, error: BaseException) -> None:
        """Nothing may."""
        raise AssertionError(what) from error
