"""A connection to a bookie for adds alone, in version 2: entries in groups, out and back.

What a message costs a broker whose bookies are other processes is decided here: requests are 28 bytes before bytes
that are there already, answers are told as runs, and neither makes an object for an entry
(``wire/bookkeeper/add_stream``, ``core/adds_under_way``). Recovery's adds do not go here, so all that is sent for a
ledger is of its only writer: an answer that comes when its add was given up, and the same entry was sent again since,
tells of the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from geminga.bookkeeper.core.adds_under_way import NO_ANSWER, AddOutcome, AddsUnderWay
from geminga.bookkeeper.remote.kept_connection import ANSWER_TIMEOUT_S, BookieEnd, KeptConnection, Receiver
from geminga.model.bookie_port import AddDone
from geminga.model.errors import ProtocolError, StorageError
from geminga.runtime import Runtime
from geminga.wire.bookkeeper.add_stream import ADD_HEAD_BYTES, AddAnswerDecoder, add_parts
from geminga.wire.bookkeeper.codes import StatusCode, error_of_status


class AddChannel(KeptConnection):
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        bookie: BookieEnd,
        *,
        on_state: Callable[[bool], None],
        on_read_only: Callable[[], None],
    ) -> None:
        """As a :class:`KeptConnection`, which is connected again by itself once something was sent.

        ``on_read_only``: the bookie refused an add for that.
        """
        super().__init__(runtime, bookie, on_state=on_state, keeps_connected=True)
        self._on_read_only = on_read_only
        self._adds = AddsUnderWay()

    def takes(self, ledger_id: int, entry_ids: Sequence[int]) -> bool:
        """Whether these may be sent now: none of them is under way here."""
        return self._adds.takes(ledger_id, entry_ids)

    def send(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        entry_bytes: int,
        master_key: bytes,
        done: AddDone,
    ) -> None:
        """Send adds that it :meth:`takes`; ``done`` as the port says, never within this call. ``entry_bytes``: sum."""
        why = self._refusal(self._adds.size_bytes)
        if why is not None:
            self._loop.call_soon(done, entry_ids, StorageError(f"bookie {self._name}: {why}"))
            return
        size_bytes = entry_bytes + ADD_HEAD_BYTES * len(entries)
        self._adds.sent(ledger_id, entry_ids, size_bytes, self._loop.time() + ANSWER_TIMEOUT_S, done)
        self._unsent += add_parts(master_key, entries)
        self._write(size_bytes)

    async def close(self) -> None:
        """See :meth:`KeptConnection.close`."""
        await super().close()
        self._on_read_only = _nobody_hears

    # ---- answers

    def _receiver(self) -> Receiver:
        decoder = AddAnswerDecoder()

        def receive(data: bytes) -> ProtocolError | None:
            self._tell(self._adds.answered(decoder.feed(data)), "")
            return decoder.error

        return receive

    def _fail_all(self, why: str) -> None:
        self._tell(self._adds.fail_all(), f"bookie {self._name}: {why}")

    def _expire(self, now_s: float) -> float | None:
        late = self._adds.expire(now_s)
        deadline_s = self._adds.next_deadline_s
        self._tell(late, f"bookie {self._name} did not answer within {ANSWER_TIMEOUT_S:g} s")
        return deadline_s

    def _tell(self, outcomes: Iterable[AddOutcome], no_answer: str) -> None:
        for done, ledger_id, entry_ids, status in outcomes:
            if not status:
                done(entry_ids, None)
            elif status == NO_ANSWER:
                done(entry_ids, StorageError(no_answer))
            else:
                if status == StatusCode.EREADONLY:
                    self._on_read_only()
                done(entry_ids, error_of_status(status, f"bookie {self._name}, ledger {ledger_id}"))


def _nobody_hears() -> None:
    """Instead of the owner of a channel that is closed."""
