"""A connection to a bookie for requests of any kind, each with a number of this channel's.

They are answered in any order, each once: by the bookie, or with an error when the connection is lost, can not be made,
or no answer came in time. An answer that comes after that is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from geminga.bookkeeper.remote.kept_connection import ANSWER_TIMEOUT_S, BookieEnd, KeptConnection, Receiver
from geminga.model.errors import ProtocolError, StorageError
from geminga.runtime import Runtime
from geminga.runtime.log import trace_id
from geminga.wire.bookkeeper import v3
from geminga.wire.bookkeeper.answers import Answer
from geminga.wire.bookkeeper.codes import VERSION_3
from geminga.wire.bookkeeper.stream import AnswerDecoder

#: ``answered(tag, answer or error)``: once; the tag is what :meth:`Channel.send` was given.
Answered: TypeAlias = Callable[[int, "Answer | StorageError"], None]


class _Request(NamedTuple):
    """One without an answer."""

    answered: Answered
    tag: int
    size_bytes: int
    #: By the loop's time.
    deadline_s: float


class Channel(KeptConnection):
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        bookie: BookieEnd,
        version: int,
        *,
        frame_bytes_max: int,
        on_state: Callable[[bool], None],
        keeps_connected: bool,
    ) -> None:
        """As a :class:`KeptConnection`. ``version``: of the protocol. ``frame_bytes_max``: of an answer."""
        super().__init__(runtime, bookie, on_state=on_state, keeps_connected=keeps_connected)
        self._version = version
        self._frame_bytes_max = frame_bytes_max
        self._next_id = 0
        #: By number, in the order they were sent, which is that of their deadlines.
        self._requests: dict[int, _Request] = {}
        self._outstanding_bytes = 0

    def send(self, make: Callable[[int], bytes], answered: Answered, tag: int = 0) -> None:
        """Send what ``make(number)`` gives; ``answered`` once, never within this call."""
        why = self._refusal(self._outstanding_bytes)
        if why is not None:
            self._loop.call_soon(answered, tag, StorageError(f"bookie {self._name}: {why}"))
            return
        self._next_id += 1
        data = make(self._next_id)
        if self._version == VERSION_3 and (trace := trace_id.get()):
            data = v3.with_trace(data, trace)
        deadline_s = self._loop.time() + ANSWER_TIMEOUT_S
        self._requests[self._next_id] = _Request(answered, tag, len(data), deadline_s)
        self._outstanding_bytes += len(data)
        self._unsent.append(data)
        self._write(len(data))

    # ---- answers

    def _receiver(self) -> Receiver:
        decoder = AnswerDecoder(self._version, self._frame_bytes_max)

        def receive(data: bytes) -> ProtocolError | None:
            self._got(decoder.feed(data))
            return decoder.error

        return receive

    def _got(self, answers: list[Answer]) -> None:
        """What came with one read of the socket."""
        requests = self._requests
        for answer in answers:
            request = requests.pop(answer.txn_id, None)
            if request is not None:
                self._outstanding_bytes -= request.size_bytes
                request.answered(request.tag, answer)

    def _fail_all(self, why: str) -> None:
        requests, self._requests = self._requests, {}
        self._outstanding_bytes = 0
        for request in requests.values():
            request.answered(request.tag, StorageError(f"bookie {self._name}: {why}"))

    def _expire(self, now_s: float) -> float | None:
        late: list[int] = []
        deadline_s = None
        for number, request in self._requests.items():
            if request.deadline_s > now_s:
                deadline_s = request.deadline_s
                break
            late.append(number)
        for number in late:
            late_request = self._requests.pop(number, None)
            if late_request is not None:
                self._outstanding_bytes -= late_request.size_bytes
                error = StorageError(f"bookie {self._name} did not answer within {ANSWER_TIMEOUT_S:g} s")
                late_request.answered(late_request.tag, error)
        return deadline_s
