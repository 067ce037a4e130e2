"""Backups asked for by the broker processes of a standalone, over a Unix socket: both ends.

The storage, and so the backup, is of another process than the one that answers REST. One question a connection, one
answer, both a line of JSON: ``docs/formats/backup-socket.md``.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from geminga.model.errors import ConflictError, GemingaError, PreconditionFailedError, UnavailableError
from geminga.runtime import Runtime, spawn
from geminga.runtime.ports import Listener

if TYPE_CHECKING:
    from geminga.broker.administration.services import Backups

#: Until a question is there whole, and until its answer is: the storage looks at a directory before it begins.
QUESTION_S: Final = 10.0
ANSWER_S: Final = 30.0
#: Of a line, either way.
LINE_BYTES_MAX: Final = 64 * 1024
_REFUSALS: Final[Mapping[str, type[GemingaError]]] = {
    "conflict": ConflictError,
    "precondition": PreconditionFailedError,
}


async def serve_backups(runtime: Runtime, path: str, backups: Callable[[], Backups]) -> Listener:
    """Answer whoever connects to the Unix socket ``path``. Raises OSError."""
    return await runtime.network.listen_local(lambda: _Asking(lambda line: _answer(backups(), line), QUESTION_S), path)


async def _answer(backups: Backups, line: bytes) -> bytes:
    try:
        asked = json.loads(line)
        if asked["call"] == "start":
            whole, rate_limit = asked["whole"] is True, int(asked["rateLimit"])
            await backups.start(str(asked["directory"]), str(asked["request"]), whole=whole, rate_limit=rate_limit)
        elif asked["call"] != "state":
            raise PreconditionFailedError(f"{str(asked['call'])[:80]!r}: expected start or state")
        answer: dict[str, Any] = {"state": dict(await backups.state())}
    except (ValueError, KeyError, TypeError) as error:
        answer = {"refused": "precondition", "why": f"no question of a broker process: {error}"[:500]}
    except (ConflictError, PreconditionFailedError) as error:
        answer = {"refused": "conflict" if isinstance(error, ConflictError) else "precondition", "why": str(error)}
    return json.dumps(answer).encode() + b"\n"


class SharedBackups:
    """Implements ``broker.administration.services.Backups``: asks the process of the storage."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime = runtime
        self._path = path

    async def start(self, directory: str, request: str, *, whole: bool, rate_limit: int = 0) -> None:
        """See the protocol. Raises UnavailableError where the storage does not answer."""
        place = {"directory": directory, "request": request}
        await self._ask({"call": "start", **place, "whole": whole, "rateLimit": rate_limit})

    async def state(self) -> Mapping[str, str | int]:
        """See the protocol. Raises UnavailableError."""
        return cast("Mapping[str, str | int]", (await self._ask({"call": "state"}))["state"])

    async def _ask(self, question: Mapping[str, str | bool | int]) -> Mapping[str, Any]:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_S):
                line = _Heard(json.dumps(question).encode() + b"\n", heard)
                transport, _ = await self._runtime.network.connect_local(lambda: line, self._path)
                try:
                    answer = json.loads(await heard)
                finally:
                    transport.close()
        except (OSError, ValueError, TimeoutError) as error:
            raise UnavailableError(
                f"{self._path}: the storage does not answer: {error or 'no answer in time'}"
            ) from None
        refusal = _REFUSALS.get(answer.get("refused", ""))
        if refusal is not None:
            raise refusal(answer["why"])
        return cast("Mapping[str, Any]", answer)


class _Lines(asyncio.Protocol, ABC):
    """Reads one line."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        # No isinstance: uvloop's transports are not asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\n" in self._data:
            self.heard(bytes(self._data))
        elif len(self._data) > LINE_BYTES_MAX:
            self._transport.abort()

    @abstractmethod
    def heard(self, line: bytes) -> None:
        """It is whole."""


class _Asking(_Lines):
    """One who asks."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]], question_s: float) -> None:
        super().__init__()
        self._answer = answer
        self._question_s = question_s
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = asyncio.get_running_loop().call_later(self._question_s, self._transport.abort)

    def heard(self, line: bytes) -> None:
        if self._task is None:
            self._end_wait()
            self._task = spawn(self._tell(line), name="question of a backup")

    async def _tell(self, line: bytes) -> None:
        self._transport.write(await self._answer(line))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class _Heard(_Lines):
    """One question, until its answer is there."""

    def __init__(self, question: bytes, heard: asyncio.Future[bytes]) -> None:
        super().__init__()
        self._question = question
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.write(self._question)

    def heard(self, line: bytes) -> None:
        if not self._heard.done():
            self._heard.set_result(line)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._heard.done():
            self._heard.set_exception(ConnectionResetError("closed without an answer"))
