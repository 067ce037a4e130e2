"""Ack sets as clients send them: words of 64 messages of a batch, a set bit is a message not acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Words in the ack set of one batch, 1,048,576 messages: no batch of the largest message has more.
WORDS_MAX: Final = 1 << 14
#: Ack sets up to this length (1,024 messages; official clients put 1,000 into a batch) are taken as they are.
WORDS_SHORT: Final = 16
_WORD_BITS: Final = 64


def cut_to_batch(words: Sequence[int], message_count: int) -> tuple[int, ...]:
    """The words without bits behind the batch's end; ``words`` are signed int64."""
    whole, rest = divmod(max(0, message_count), _WORD_BITS)
    kept = tuple(words[:whole])
    if rest and len(words) > whole:
        kept += (words[whole] & ((1 << rest) - 1),)
    return kept
