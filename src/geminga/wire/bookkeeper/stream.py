"""The bookie protocol as a stream: bytes of a connection in, requests or answers out. Pure.

A bookie serves every version on one port. A connection begins in version 3; the first frame that is no message of it
turns the connection to the versions before for good, as in Apache's bookie (``BookieProtoEncoding.RequestDecoder``).
No request of versions 0 to 7 can be mistaken: its first byte is the version, and a protobuf message that begins with a
byte below 8 has a field of number 0, which none has.
"""

from __future__ import annotations

from geminga.model.errors import ProtocolError
from geminga.wire.bookkeeper import v2, v3, v3_answers
from geminga.wire.bookkeeper.add_stream import AddRuns
from geminga.wire.bookkeeper.answers import Answer
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX, VERSION_2, VERSION_3
from geminga.wire.bookkeeper.frame import BookieFrameDecoder
from geminga.wire.bookkeeper.requests import Request


class RequestDecoder:
    """The requests of one connection; never raises."""

    __slots__ = ("_frames", "_runs", "error", "version")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, gathers_adds: bool = False) -> None:
        """``frame_bytes_max``: of one frame with its size. ``gathers_adds``: plain ones of version 2 come as runs."""
        self._frames = BookieFrameDecoder(frame_bytes_max)
        self._runs = AddRuns() if gathers_adds else None
        #: 3 until a frame came that is no message of version 3; 2 from then on, for versions 0 to 2.
        self.version = VERSION_3
        #: Why the connection must be closed; what came before was given. None while it may go on.
        self.error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete frame held now."""
        return self._frames.buffered_bytes

    @property
    def incomplete_bytes(self) -> int:
        """What that frame has when it is whole, with its size; 0: there is none."""
        return self._frames.incomplete_bytes

    def drop(self) -> None:
        """The connection is gone: what is held of a frame is never needed."""
        self._frames.drop()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are whole with ``data``, in order; none after an error."""
        requests: list[Request] = []
        if self.error is not None:
            return requests
        runs = self._runs
        for frame, start, end in self._frames.feed(data):
            if runs is not None and self.version == VERSION_2:
                run = runs.take(frame, start, end)
                if run is True:
                    continue
                if run:
                    requests.append(run)
                    continue
                runs.end()
            if self.version == VERSION_3:
                request = v3.decode_request(frame, start, end)
                if request is not None:
                    requests.append(request)
                    continue
                self.version = VERSION_2
            try:
                requests.append(v2.decode_request(frame, start, end))
            except ProtocolError as error:
                self.error = error
                break
        else:
            self.error = self._frames.error
        if runs is not None:
            runs.end()
        return requests


class AnswerDecoder:
    """The answers on one connection of a client, in the version that it speaks there; never raises."""

    __slots__ = ("_decode", "_frames", "error")

    def __init__(self, version: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """``frame_bytes_max``: of one frame with its size."""
        self._frames = BookieFrameDecoder(frame_bytes_max)
        self._decode = v3_answers.decode_answer if version == VERSION_3 else v2.decode_answer
        #: Why the connection must be closed; what came before was given. None while it may go on.
        self.error: ProtocolError | None = None

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that are whole with ``data``, in order; none after an error."""
        answers: list[Answer] = []
        if self.error is not None:
            return answers
        decode = self._decode
        try:
            for frame, start, end in self._frames.feed(data):
                answers.append(decode(frame, start, end))
        except ProtocolError as error:
            self.error = error
            return answers
        self.error = self._frames.error
        return answers
