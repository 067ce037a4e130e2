"""Which brokers are registered in the metadata store: ``/loadbalance/brokers``, looked at again from time to time.

While the store does not answer they are those that were there last, as with Pulsar's proxy: brokers go on without it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from geminga.broker.ownership.core.broker_data import BROKERS_PATH, broker_path
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import MetadataError, UnavailableError
from geminga.proxy.core.requests import target_of
from geminga.proxy.core.targets import Target
from geminga.runtime import SparseWarnings, get_logger, spawn

_log = get_logger(__name__)

#: Seconds that what was read is taken to be so. A broker that has gone since is found out by connecting to it.
FRESH_S: Final = 1.0
#: Seconds that the store may take before what was read last is used.
PATIENCE_S: Final = 1.0
#: The same where nothing was read yet: then who asks is told so, before its own patience ends.
FIRST_PATIENCE_S: Final = 10.0
#: Brokers that are looked at.
BROKERS_MAX: Final = 10_000


class RegisteredBrokers:
    """A ``BrokerDirectory`` out of the metadata store."""

    def __init__(self, metadata: MetadataStore, monotonic: Callable[[], float], *, uses_tls: bool) -> None:
        self._metadata = metadata
        self._monotonic = monotonic
        self._member = "pulsarServiceUrlTls" if uses_tls else "pulsarServiceUrl"
        self._web_member = "webServiceUrlTls" if uses_tls else "webServiceUrl"
        self._web_urls: list[str] = []
        self._targets: list[Target] = []
        #: All that brokers say of where they are, listeners of theirs among it.
        self._known: frozenset[Target] = frozenset()
        #: Whether the store ever said which there are.
        self._are_known = False
        #: When it did, or was not waited for any longer; before: never.
        self._looked_s = -FRESH_S
        self._turn = 0
        #: One reading at a time, whoever asks; what kept it from its end.
        self._reading: asyncio.Task[UnavailableError | None] | None = None
        self._warnings = SparseWarnings(_log, monotonic)

    async def entry(self) -> Target:
        """One of them, in turn. Raises UnavailableError."""
        await self._look()
        if not self._targets:
            raise UnavailableError(f"no broker is registered in the metadata store with {self._member}")
        self._turn += 1
        return self._targets[self._turn % len(self._targets)]

    async def is_active(self, target: Target) -> bool:
        """Whether one of them is there."""
        await self._look()
        return target in self._known

    async def web_url(self) -> str:
        """Of the web service of one of them, in turn. Raises UnavailableError."""
        await self._look()
        if not self._web_urls:
            raise UnavailableError(f"no broker is registered in the metadata store with {self._web_member}")
        self._turn += 1
        return self._web_urls[self._turn % len(self._web_urls)]

    async def _look(self) -> None:
        """Raises UnavailableError where the store never said which brokers there are."""
        if self._monotonic() - self._looked_s < FRESH_S:
            return
        reading = self._reading
        if reading is None:
            reading = self._reading = spawn(self._read(), name="registered brokers")
        # Who is cut off does not take it from the others.
        await asyncio.wait([reading], timeout=PATIENCE_S if self._are_known else FIRST_PATIENCE_S)
        self._looked_s = self._monotonic()
        error = reading.result() if reading.done() else UnavailableError("the metadata store does not answer")
        if error is None:
            return
        if not self._are_known:
            self._looked_s = -FRESH_S
            try:
                raise error
            finally:
                del error, reading  # see runtime's value_of
        self._warnings.warn(f"brokers are asked that were registered before: {error}")

    async def _read(self) -> UnavailableError | None:
        try:
            await self._read_all()
        except MetadataError as error:
            return UnavailableError(f"the metadata store does not say which brokers there are: {error}")
        finally:
            self._reading = None
        return None

    async def _read_all(self) -> None:
        names = await self._metadata.children(BROKERS_PATH)
        documents = [await self._metadata.get(broker_path(name)) for name in sorted(names)[:BROKERS_MAX]]
        targets: list[Target] = []
        known: set[Target] = set()
        web_urls: list[str] = []
        for found in documents:
            document = {} if found is None else _document(found.value)
            urls = _urls(document)
            web_url = document.get(self._web_member)
            web_urls += [web_url] if isinstance(web_url, str) and web_url else []
            targets += [target for key, target in urls if key == self._member]
            known.update(target for _, target in urls)
        self._web_urls = web_urls
        self._targets, self._known, self._are_known = targets, frozenset(known), True


def _document(value: bytes) -> dict[str, Any]:
    """What a broker says of itself; of what is no registration nothing."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _urls(document: dict[str, Any]) -> list[tuple[str, Target]]:
    """Where a broker is: member -> host and port."""
    said = [(key, document.get(key)) for key in ("pulsarServiceUrl", "pulsarServiceUrlTls")]
    listeners = document.get("advertisedListeners")
    for one in listeners.values() if isinstance(listeners, dict) else ():
        if isinstance(one, dict):
            said += [("", one.get(key)) for key in ("brokerServiceUrl", "brokerServiceUrlTls")]
    found: list[tuple[str, Target]] = []
    for key, url in said:
        if isinstance(url, str) and url:
            try:
                found.append((key, target_of(url)))
            except UnavailableError:
                continue
    return found
