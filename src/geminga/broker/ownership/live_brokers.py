"""Who is there: the brokers of the cluster, by their registrations, followed.

While the metadata store does not answer, those that were there are taken to be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from geminga.broker.ownership.core.broker_data import (
    BROKERS_PATH,
    RegisteredBroker,
    broker_path,
    decode_broker,
    is_gemingas,
)
from geminga.broker.ownership.rounds import Rounds
from geminga.metadata.ports import MetadataStore, SessionEvent, Unsubscribe
from geminga.model.errors import CorruptionError, MetadataError
from geminga.runtime import Part, get_logger

#: More are not looked at.
BROKERS_MAX: Final = 10_000

_log = get_logger(__name__)


class LiveBrokers:
    """See the module."""

    def __init__(self, metadata: MetadataStore, *, part: Part | None = None) -> None:
        self._metadata = metadata
        self._rounds = Rounds(self._look, "brokers of the cluster", part=part)
        self._brokers: dict[str, RegisteredBroker] = {}
        self._listeners: list[Callable[[], None]] = []
        self._ends: list[Unsubscribe] = []
        #: What could not be read was told.
        self._logged: set[str] = set()

    async def start(self) -> None:
        """Read who is there, and follow. Raises MetadataError."""
        self._ends.append(self._metadata.watch_children(BROKERS_PATH, lambda _: self._rounds.look_soon()))
        self._ends.append(self._metadata.on_session_event(self._session_changed))
        await self._read()
        self._rounds.start()

    async def close(self) -> None:
        """Stop following."""
        for end in self._ends:
            end()
        await self._rounds.end()

    @property
    def all(self) -> list[RegisteredBroker]:
        """By id."""
        return list(self._brokers.values())

    def find(self, broker_id: str) -> RegisteredBroker | None:
        """None: it is not there."""
        return self._brokers.get(broker_id)

    def is_of_another_make(self, broker_id: str) -> bool:
        """Whether it is there, and not of Geminga's."""
        found = self.find(broker_id)
        return found is not None and not is_gemingas(found.document)

    def listen(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when brokers came or went, until the end."""
        self._listeners.append(changed)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._rounds.look_soon()

    async def _look(self) -> bool:
        try:
            await self._read()
        except MetadataError:
            return False
        return True

    async def _read(self) -> None:
        found: dict[str, RegisteredBroker] = {}
        names = (await self._metadata.children(BROKERS_PATH))[:BROKERS_MAX]
        self._logged &= set(names)
        for broker_id in names:
            node = await self._metadata.get(broker_path(broker_id))
            if node is None:
                continue
            try:
                found[broker_id] = decode_broker(broker_id, node.value)
                self._logged.discard(broker_id)
            except CorruptionError as error:
                # One that says nonsense is not given anything; the others go on.
                if broker_id not in self._logged:
                    self._logged.add(broker_id)
                    _log.warning("%s", error)
        is_news = found.keys() != self._brokers.keys()
        came, went = sorted(found.keys() - self._brokers.keys()), sorted(self._brokers.keys() - found.keys())
        self._brokers = found
        if is_news:
            _log.info("brokers of the cluster: %s came, %s went", ", ".join(came) or "none", ", ".join(went) or "none")
            for changed in list(self._listeners):
                changed()
