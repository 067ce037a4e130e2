"""Single entries that aborted transactions gave back, of what the one active consumer was sent already.

Order is kept there by reading the log anew. Everything behind the first entry that was given back would come with it:
what the consumer has in its queue, or in its hands, a second time, and a message that it then acknowledged in a
transaction once more, which is a conflict. So of what was sent before, only what was given back is sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga.broker.core.dispatch.shared import Candidate
from geminga.broker.subscription.entry_filter import bits_of_words, count_bits, words_of_bits
from geminga.model import Position
from geminga.transaction.core.pending_acks import WHOLE, TxnAck


class GivenBack:
    """See the module. Lives until all that was sent has been read again."""

    __slots__ = ("_bits", "until")

    def __init__(self, until: Position) -> None:
        """``until``: the last entry that was sent, or passed over."""
        self.until = until
        #: Entry -> which messages of it, as bits.
        self._bits: dict[Position, int] = {}

    def add(self, acks: Iterable[TxnAck]) -> None:
        """A transaction was aborted that held these."""
        for ack in acks:
            self._bits[ack.position] = self._bits.get(ack.position, 0) | ack.bits

    def taken_from(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """What is to be sent of entries that were read, which counts as sent now."""
        wanted: list[Candidate] = []
        for candidate in candidates:
            found = candidate if candidate.position > self.until else self._part(candidate)
            if found is not None:
                wanted.append(found)
        return wanted

    def is_over(self, position: Position) -> bool:
        """Whether that entry, the last one read, ends it."""
        return position >= self.until

    def _part(self, candidate: Candidate) -> Candidate | None:
        position = candidate.position
        bits = self._bits.pop(position, 0)
        if bits == WHOLE:
            return candidate
        left = _unacknowledged(candidate.ack_set, candidate.message_count) & bits
        if not left:
            return None
        words = words_of_bits(left)
        return Candidate(position, candidate.data, count_bits(words), candidate.sticky_hash, words, candidate.is_chunk)


def _unacknowledged(ack_set: Sequence[int] | None, message_count: int) -> int:
    return (1 << message_count) - 1 if ack_set is None else bits_of_words(ack_set)
