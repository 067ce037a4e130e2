"""What ``geminga bookie`` answers over HTTP: metrics, and the few of BookKeeper's paths that tell whether it is well.

Loaded by the first request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from geminga.app.lifecycle.log_lines import PackageLevels
from geminga.app.lifecycle.plain_http import JSON, HttpAnswer, PlainHttp
from geminga.app.lifecycle.process_metrics import directories_metrics, parts_metrics, process_metrics, status_of
from geminga.bookie.spread import SpreadBookie
from geminga.model.bookie_port import Availability, BookieInfo
from geminga.model.errors import StorageError
from geminga.model.exposition import Source


class BookieHttp(PlainHttp):
    """An ASGI application for one bookie."""

    def __init__(
        self,
        bookie: SpreadBookie,
        monotonic: Callable[[], float],
        sources: Sequence[Source] = (),
        levels: PackageLevels | None = None,
        *,
        knows_clients: bool = False,
    ) -> None:
        """``sources``: what else its process counts. ``levels``, ``knows_clients``: see :class:`PlainHttp`."""
        self._bookie = bookie
        plain: list[Source] = [process_metrics, status_of(bookie), directories_metrics(bookie.parts), *sources]
        super().__init__(
            "bookie",
            [*(((), source) for source in plain), *parts_metrics(bookie.parts, monotonic)],
            {
                "/api/v1/bookie/is_ready": self._is_ready,
                "/api/v1/bookie/state": self._state,
                "/api/v1/bookie/info": self._info,
            },
            levels,
            knows_clients=knows_clients,
        )

    async def _is_ready(self) -> HttpAnswer:
        """A read-only bookie is ready: it serves what it has."""
        if self._bookie.availability is Availability.DOWN:
            return HttpAnswer(503, "Bookie is not serving: it is being stopped, or a disk failed\n")
        return HttpAnswer(200, "OK")

    async def _state(self) -> HttpAnswer:
        availability = self._bookie.availability
        state = {
            "running": availability is not Availability.DOWN,
            "readOnly": availability is Availability.READ_ONLY,
            "shuttingDown": availability is Availability.DOWN,
            # A full disk refuses what recovery adds as well.
            "availableForHighPriorityWrites": availability is Availability.WRITABLE,
        }
        return HttpAnswer(200, json.dumps(state), JSON)

    async def _info(self) -> HttpAnswer:
        found: asyncio.Future[BookieInfo | StorageError] = asyncio.get_running_loop().create_future()

        def have(info: BookieInfo | StorageError) -> None:
            if not found.done():
                found.set_result(info)

        self._bookie.read_info(done=have)
        info = await found
        if isinstance(info, StorageError):
            return HttpAnswer(503, f"The room on its disks can not be told: {info}\n")
        return HttpAnswer(200, json.dumps({"freeSpace": info.free_bytes, "totalSpace": info.total_bytes}), JSON)
