"""The one broker of a cluster: waits until it is alone, registers, and ends when another took over.

Nodes and rules: ``docs/formats/broker-registration.md``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final, NamedTuple

from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent
from geminga.model.errors import BadVersionError, ConflictError, MetadataError, NoSuchNodeError
from geminga.runtime import get_logger, spawn, wait_ms

BROKERS_PATH: Final = "/loadbalance/brokers"
#: Beyond the session's time-out: the server ends sessions in steps.
WAIT_MARGIN_S: Final = 5.0
#: Between two looks while it waits, and between two attempts to register.
RETRY_MS: Final = 500

_log = get_logger(__name__)


class BrokerData(NamedTuple):
    """What others are told of a broker."""

    web_service_url: str
    broker_service_url: str
    version: str
    started_ms: int

    def encode(self) -> bytes:
        """Pulsar's ``LocalBrokerData``, without what it measures."""
        return json.dumps(
            {
                "webServiceUrl": self.web_service_url,
                "pulsarServiceUrl": self.broker_service_url,
                "brokerVersionString": f"geminga-{self.version}",
                "startTimestamp": self.started_ms,
                "persistentTopicsEnabled": True,
                "nonPersistentTopicsEnabled": True,
                "protocols": {},
                "advertisedListeners": {},
            }
        ).encode()


class SoleBroker:
    """See the module. ``on_lost`` is called when another broker has taken over; it should end the process."""

    def __init__(
        self, metadata: MetadataStore, session_timeout_ms: int, on_lost: Callable[[str, BaseException], object]
    ) -> None:
        self._metadata = metadata
        self._patience_s = session_timeout_ms / 1000 + WAIT_MARGIN_S
        self._on_lost = on_lost
        self._id = ""
        self._value = b""
        self._due = asyncio.Event()
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def wait_until_alone(self) -> None:
        """Raises ConflictError if another broker stays registered, MetadataError."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience_s
        was_told = False
        while others := await self._others():
            if clock() >= deadline:
                raise ConflictError(
                    f"{', '.join(others)} is registered as a broker of this cluster, and a cluster has one broker of "
                    "Geminga's: does it run elsewhere? Stop it first"
                )
            if not was_told:
                was_told = True
                _log.warning("waiting until the session of %s ends", ", ".join(others))
            await wait_ms(RETRY_MS)

    async def begin(self, broker_id: str, data: BrokerData) -> None:
        """Register as ``host:port``. Raises ConflictError if another came at the same moment, MetadataError."""
        self._id, self._value = broker_id, data.encode()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._patience_s
        while True:
            try:
                await self._register()
                break
            except MetadataError:
                # It may have been written or not: what is there is looked at first.
                if clock() >= deadline:
                    raise
            await wait_ms(RETRY_MS)
        self._unsubscribe = self._metadata.on_session_event(self._session_changed)
        self._task = spawn(self._follow(), name="broker-registration")

    async def end(self) -> None:
        """Take the node away; what can not be is left to the end of the session."""
        self._is_ending = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._task is not None:
            self._due.set()
            await self._task
        try:
            await self._withdraw()
        except MetadataError as error:
            _log.warning("the broker's registration stays until its session ends: %s", error)

    # ---- its node

    @property
    def _path(self) -> str:
        return f"{BROKERS_PATH}/{self._id}"

    async def _others(self) -> list[str]:
        """Who else is registered; a node of our own name that is another session's counts."""
        found = []
        for name in await self._metadata.children(BROKERS_PATH):
            node = await self._metadata.get(f"{BROKERS_PATH}/{name}")
            if node is not None and not node.stat.is_own:
                found.append(name)
        return found

    async def _register(self) -> None:
        node = await self._metadata.get(self._path)
        if node is not None and not node.stat.is_own:
            raise ConflictError(f"another broker is registered as {self._id}")
        if node is None:
            try:
                await self._metadata.put(self._path, self._value, expected_version=MUST_NOT_EXIST, ephemeral=True)
            except BadVersionError:
                raise ConflictError(f"another broker is registered as {self._id}") from None
        own = await self._metadata.get(self._path)
        for name in await self._others():
            other = await self._metadata.get(f"{BROKERS_PATH}/{name}")
            if other is None or own is None:
                continue
            if (other.stat.created_ms, name) < (own.stat.created_ms, self._id):
                await self._withdraw()
                raise ConflictError(f"broker {name} was registered first, and a cluster has one broker of Geminga's")

    async def _withdraw(self) -> None:
        if not self._id:
            return
        node = await self._metadata.get(self._path)
        if node is not None and node.stat.is_own:
            try:
                await self._metadata.delete(self._path)
            except NoSuchNodeError:
                pass

    # ---- the session

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTION_LOST:
            self._due.set()

    async def _follow(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._is_ending:
                return
            try:
                await self._register()
            except ConflictError as error:
                _log.error("another broker has taken over: %s", error)
                self._on_lost("registration of the broker", error)
                return
            except MetadataError as error:
                _log.warning("the broker is not registered now, trying again: %s", error)
                await wait_ms(RETRY_MS)
                self._due.set()
