"""What happened to one producer's messages, and whether that is what was promised. Pure.

Promised: what was acknowledged is read, in the order it was sent; with deduplication nothing is read twice. A message
whose receipt never came may be there or not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Verdict(NamedTuple):
    """What is wrong; numbers of messages."""

    lost: tuple[int, ...]
    out_of_order: tuple[int, ...]
    duplicated: tuple[int, ...]
    #: Read, and never sent.
    invented: tuple[int, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing is."""
        return not any(self)


def judge(sent: int, acknowledged: Collection[int], read: Sequence[int]) -> Verdict:
    """``read``: all messages of the topic in the order it has them; numbers from 0 to ``sent`` were sent, in order."""
    seen: set[int] = set()
    duplicated, out_of_order, invented = [], [], []
    newest = -1
    for number in read:
        if not 0 <= number < sent:
            invented.append(number)
        elif number in seen:
            duplicated.append(number)
        elif number < newest:
            out_of_order.append(number)
        seen.add(number)
        newest = max(newest, number)
    lost = sorted(set(acknowledged) - seen)
    return Verdict(tuple(lost), tuple(out_of_order), tuple(duplicated), tuple(invented))


def undelivered(acknowledged: Collection[int], delivered: Collection[int]) -> tuple[int, ...]:
    """What a subscription never got of what was acknowledged to the producer."""
    return tuple(sorted(set(acknowledged) - set(delivered)))
