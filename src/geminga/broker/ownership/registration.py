"""This broker's node among those of its cluster: made, changed and made again, as long as the broker is a member.

Nodes and rules: ``docs/formats/broker-registration.md``.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.broker.ownership.core.broker_data import broker_path
from geminga.broker.ownership.rounds import RETRY_MS, Rounds
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent, Unsubscribe
from geminga.model.errors import BadVersionError, ConflictError, MetadataError, NoSuchNodeError, UnknownOutcomeError
from geminga.runtime import Part, SparseWarnings, again, get_logger, wait_ms

#: Beyond a session's time-out: the server ends sessions in steps.
WAIT_MARGIN_S: Final = 5.0

_log = get_logger(__name__)


class BrokerRegistration:
    """See the module."""

    def __init__(
        self, metadata: MetadataStore, session_timeout_ms: int, broker_id: str, *, part: Part | None = None
    ) -> None:
        self._metadata = metadata
        self._timeout_s = session_timeout_ms / 1000 + WAIT_MARGIN_S
        self._id = broker_id
        self._path = broker_path(broker_id)
        self._value = b""
        self._rounds = Rounds(self._look, "registration of this broker", part=part)
        #: A store that is away is away for long, and is looked at twice a second.
        self._warnings = SparseWarnings(_log, asyncio.get_running_loop().time)
        self._unwatch: Unsubscribe | None = None
        self._unsubscribe: Unsubscribe | None = None
        #: Whether the last look found, or left, a node of ours.
        self.is_registered = False

    async def begin(self, value: bytes) -> None:
        """Register; a predecessor's node at the same address is waited for until its session must be over.

        Raises ConflictError if another broker stays registered under this address, MetadataError.
        """
        self._value = value
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_s
        was_logged = False
        while True:
            try:
                if await self._register():
                    break
                error: MetadataError | None = None
            except MetadataError as failed:
                error = again(failed)
            if clock() >= deadline:
                raise (
                    again(error)
                    if error is not None
                    else ConflictError(
                        f"another broker is registered as {self._id}: does it run elsewhere, with the same "
                        "advertisedAddress and webServicePort? Stop it, or give one of them another address"
                    )
                )
            if error is None and not was_logged:
                was_logged = True
                _log.warning("waiting until the session of %s's predecessor ends", self._id)
            await wait_ms(RETRY_MS)
        self._unwatch = self._metadata.watch_node(self._path, lambda _: self._rounds.look_soon())
        self._unsubscribe = self._metadata.on_session_event(self._session_changed)
        self._rounds.start()

    def update(self, value: bytes) -> None:
        """Say something else from now on; it is written soon."""
        self._value = value
        self._rounds.look_soon()

    async def end(self) -> None:
        """Take the node away: nobody is sent here any more. What can not be is left to the end of the session."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._unwatch is not None:
            self._unwatch()
        await self._rounds.end()
        self.is_registered = False
        try:
            node = await self._metadata.get(self._path)
            if node is not None and node.stat.is_own:
                await self._metadata.delete(self._path, expected_version=node.stat.version)
        except (NoSuchNodeError, BadVersionError):
            pass
        except MetadataError as error:
            _log.warning("the broker's registration stays until its session ends: %s", error)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.is_registered = False
        elif event is SessionEvent.RECONNECTED:
            self._rounds.look_soon()

    async def _look(self) -> bool:
        try:
            self.is_registered = await self._register()
        except MetadataError as error:
            self._warnings.warn(f"it is not known whether this broker is registered, trying again: {error}", "unknown")
            return False
        if not self.is_registered:
            self._warnings.warn(f"another broker is registered as {self._id}", "another")
        return self.is_registered

    async def _register(self) -> bool:
        """Whether the node is there and ours, with what is to be said. Raises MetadataError."""
        node = await self._metadata.get(self._path)
        if node is not None and not node.stat.is_own:
            return False
        if node is not None and node.value == self._value:
            return True
        version = MUST_NOT_EXIST if node is None else node.stat.version
        try:
            await self._metadata.put(self._path, self._value, expected_version=version, ephemeral=node is None)
        except (BadVersionError, NoSuchNodeError, UnknownOutcomeError) as error:
            # What is there now is read.
            raise MetadataError(f"{self._path} changed while it was written: {error}") from error
        return True
