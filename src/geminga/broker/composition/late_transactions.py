"""The transactions of a broker, of which nothing is loaded before there is one.

What transactions store has names of its own (docs/formats/transactions.md); whether there were any is told by these,
without their code. A broker looks when it starts, and when partitions of ``transaction_coordinator_assign`` come
here, which coordinators left something open or half ended: those go on, though no client comes. A topic looks when it
is loaded. Where nothing was used nothing is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.ownership.ports import Ownership, Topics
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.model.errors import CorruptionError, GemingaError, UnavailableError
from geminga.model.topic_name import (
    SYSTEM_NAMESPACE,
    TRANSACTION_LOG_CURSOR,
    TRANSACTION_LOG_PREFIX,
    TRANSACTION_SNAPSHOT_INDEXES,
    TRANSACTION_SNAPSHOTS,
    TopicName,
)
from geminga.runtime import AskedTogether, Part, get_logger, spawn, wait_ms

if TYPE_CHECKING:
    from geminga.broker.subscription.ports import PendingAckLogs
    from geminga.managed_ledger import ManagedLedger
    from geminga.transaction.ports import BufferSnapshots, HoldsBack, Registrations

_log = get_logger(__name__)

#: Names asked for at a time; they share a read of the metadata store.
NAMES_AT_ONCE: Final = 64
#: Milliseconds until it is looked again for what was left, where that failed: doubled from the first to the last.
LOOK_FIRST_MS: Final = 500
LOOK_MAX_MS: Final = 60_000


class Coordinators(Protocol):
    """The coordinators of this broker."""

    async def resume(self, numbers: Collection[int]) -> None:
        """Go on with these."""
        ...

    async def taken(self, topics: Topics) -> None:
        """As :class:`OwnershipListener` says."""
        ...


class Service(Protocol):
    """The transactions of a broker, loaded."""

    @property
    def coordinators(self) -> Coordinators:
        """Those that are here."""
        ...

    @property
    def registrations(self) -> Registrations:
        """What coordinators know of participants."""
        ...

    @property
    def snapshots(self) -> BufferSnapshots:
        """Of transaction buffers."""
        ...

    @property
    def pending_ack_logs(self) -> PendingAckLogs:
        """Of subscriptions."""
        ...

    def forget_namespace(self, namespace: str) -> None:
        """It is deleted."""
        ...

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to wait for the end of a transaction."""
        ...

    def table_written(self, name: TopicName) -> None:
        """Others published in a topic of snapshots here."""
        ...

    async def close(self) -> None:
        """Close all."""
        ...


class NoTransactions:
    """Where ``transactionCoordinatorEnabled`` is not set: nothing is begun, followed, forgotten or closed."""

    __slots__ = ()
    is_on: Final = False
    used: Final = None

    def start(self) -> None:
        """As :class:`LateTransactions`."""

    def forget_namespace(self, namespace: str) -> None:
        """As :class:`LateTransactions`."""

    def table_written(self, name: TopicName) -> None:
        """As :class:`LateTransactions`."""

    async def close(self) -> None:
        """As :class:`LateTransactions`."""


class LateTransactions:
    """See the module; where ``transactionCoordinatorEnabled`` is set."""

    __slots__ = ("_asked", "_is_closed", "_ledgers", "_make", "_ownership", "_part", "used")
    is_on: Final = True

    def __init__(
        self, ledgers: ManagedLedgerFactory, ownership: Ownership, make: Callable[[], Service], part: Part
    ) -> None:
        """``make`` loads the code. ``part``: whose failure it is if looking for what was left breaks."""
        self._ledgers = ledgers
        self._ownership = ownership
        self._make = make
        self._part = part
        #: By namespace.
        self._asked: AskedTogether[str, bool] = AskedTogether()
        #: None: there was no transaction yet.
        self.used: Service | None = None
        self._is_closed = False

    def service(self) -> Service:
        """Made by the first who asks. Raises UnavailableError."""
        if self.used is None:
            if self._is_closed:
                raise UnavailableError("the broker is closing")
            self.used = self._make()
        return self.used

    @property
    def snapshots(self) -> BufferSnapshots:
        """Of transaction buffers."""
        return self.service().snapshots

    @property
    def registrations(self) -> Registrations:
        """What coordinators know of participants."""
        return self.service().registrations

    @property
    def pending_ack_logs(self) -> PendingAckLogs:
        """Of subscriptions."""
        return self.service().pending_ack_logs

    async def delete_left(self, topic: TopicName, there: Collection[str], beside: ManagedLedger) -> None:
        """As of what topics keep of transactions."""
        from geminga.broker.transactions.pending_ack_logs import LedgerPendingAckLogs, delete_left  # few are cut off

        await delete_left(LedgerPendingAckLogs(self._ledgers), topic, there, beside)

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to wait for the end of a transaction."""
        self.service().watch_held(holding)

    def forget_namespace(self, namespace: str) -> None:
        """It is deleted, with what was kept in it."""
        if self.used is not None:
            self.used.forget_namespace(namespace)

    def table_written(self, name: TopicName) -> None:
        """Others published in a topic of snapshots here; where none was read yet, it is read when it is asked for."""
        if self.used is not None:
            self.used.table_written(name)

    # ---- life

    def start(self) -> None:
        """Go on with what was left, in the background; follow what comes and goes."""
        self._ownership.listen(self)
        self.given(lambda _name: True)

    def given(self, topics: Topics) -> None:
        """As :class:`OwnershipListener` says."""
        if not self._is_closed:
            spawn(self._go_on(topics), name="look for transactions that were left", part=self._part)

    async def taken(self, topics: Topics) -> None:
        """As :class:`OwnershipListener` says."""
        if self.used is not None:
            await self.used.coordinators.taken(topics)

    async def close(self) -> None:
        """Close what was used; what is decided goes on where it is opened next."""
        self._is_closed = True
        if self.used is not None:
            await self.used.close()

    async def _go_on(self, topics: Topics) -> None:
        delay_ms = LOOK_FIRST_MS
        while not self._is_closed:
            try:
                numbers = await self._left(topics)
            except GemingaError as error:
                _log.warning("it is not known yet which transactions were left: %s", error)
                await wait_ms(delay_ms)
                delay_ms = min(2 * delay_ms, LOOK_MAX_MS)
                continue
            if numbers and not self._is_closed:
                await self.service().coordinators.resume(numbers)
            return

    # ---- what was stored

    async def _left(self, topics: Topics) -> list[int]:
        """Coordinators whose logs say something that is not over. Raises MetadataError."""
        found = []
        for name in await self._ledgers.encoded_names(f"{SYSTEM_NAMESPACE}/persistent"):
            text = name.removeprefix(TRANSACTION_LOG_PREFIX)
            if text == name or not (text.isascii() and text.isdecimal()):
                continue
            if topics(COORDINATORS_TOPIC.with_partition(int(text))) and await self._has_left(name):
                found.append(int(text))
        return sorted(found)

    async def _has_left(self, log: str) -> bool:
        try:
            info = await self._ledgers.info(f"{SYSTEM_NAMESPACE}/persistent/{log}")
        except CorruptionError:
            return True  # whoever opens it says what is wrong
        return info is not None and info.has_unread(TRANSACTION_LOG_CURSOR)

    async def has_snapshots(self, topic: TopicName) -> bool:
        """Whether topics of its namespace had transactions; asked once for all that load together. MetadataError."""
        return await self._asked.ask(topic.namespace, lambda: self._look_for_snapshots(topic))

    async def _look_for_snapshots(self, topic: TopicName) -> bool:
        for local_name in (TRANSACTION_SNAPSHOTS, TRANSACTION_SNAPSHOT_INDEXES):
            name = TopicName("persistent", topic.tenant, topic.namespace_name, local_name)
            if await self._ledgers.exists(name.managed_ledger_name):
                return True
        return False

    async def with_logs(self, topic: TopicName, subscriptions: Collection[str]) -> list[str]:
        """Those that acknowledged in transactions. Raises MetadataError."""
        found: list[str] = []
        rest = iter(subscriptions)
        while some := list(islice(rest, NAMES_AT_ONCE)):
            logs = (topic.pending_ack_log(each).managed_ledger_name for each in some)
            there = await asyncio.gather(*map(self._ledgers.exists, logs))
            found += [each for each, is_there in zip(some, there, strict=True) if is_there]
        return found
