"""Entries that are not handed out: why, and what becomes of them."""

from __future__ import annotations

from enum import Enum


class Discard(Enum):
    """Why an entry is not handed out."""

    #: It is of before the last redelivery of everything.
    OLD_EPOCH = 0
    CHECKSUM = 1
    #: Neither metadata nor payload can be read.
    BROKEN = 2
    DECOMPRESSION = 3
    DECRYPTION = 4
    #: A piece of a message that waits for its other pieces.
    CHUNK = 5
    #: A piece of a message that is larger than the application takes.
    TOO_LARGE = 6


class Fate(Enum):
    """What becomes of an entry that is not handed out."""

    #: It comes again by itself.
    NONE = 0
    #: The message comes with a later entry.
    WAIT = 1
    #: A fresh connection brings it again, and all that is not acknowledged.
    READ_AGAIN = 2
    #: It is acknowledged as if it had been received.
    ACKNOWLEDGE = 3
    #: It is received as far as timeouts go, and comes again after a reconnect.
    KEEP = 4
    #: It is acknowledged with the reason.
    REFUSE = 5


def fate(why: Discard, *, was_damaged: bool, drops_undecryptable: bool) -> Fate:
    """``was_damaged``: it came damaged before, over another connection; only what stays damaged is refused.

    ``drops_undecryptable``: the application wants nothing of what it can not decrypt.
    """
    match why:
        case Discard.OLD_EPOCH:
            return Fate.NONE
        case Discard.CHUNK:
            return Fate.WAIT
        case Discard.CHECKSUM:
            return Fate.REFUSE if was_damaged else Fate.READ_AGAIN
        case Discard.DECRYPTION:
            return Fate.ACKNOWLEDGE if drops_undecryptable else Fate.KEEP
        case Discard.TOO_LARGE:
            return Fate.KEEP
        case Discard.BROKEN | Discard.DECOMPRESSION:
            return Fate.REFUSE
