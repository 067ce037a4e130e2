"""What the owner of a source tells the owner of a shadow of it: how far may be read, and what is hidden. Pure.

It travels between brokers of this make as JSON, and is Geminga's own (docs/shadow-topics.md, "Between brokers")::

    {"listed": true, "readable": [5, 41], "bytes": 1200, "version": 7,
     "abortedThrough": [5, 12], "aborts": [[0, 3, 5, 2, 5, 12]], "whole": true}

An abort is the two numbers of the transaction, the position of its first message and that of its marker: what the
transaction published between them is for nobody. They are told in the order of their markers, and a shadow asks for
those behind the last one that it knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.broker.core.coercion import LONG_MAX, Document, Json, number_of
from geminga.model.errors import RemoteError
from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId

#: Aborts of one answer; who is told of more asks again.
ABORTS_MAX: Final = 10_000
_NUMBERS_OF_ABORT: Final = 6


class Abort(NamedTuple):
    """What an aborted transaction published is from ``first`` up to ``marker``."""

    txn_id: TxnId
    first: Position
    marker: Position


class SourceWord(NamedTuple):
    """See the module."""

    #: Whether the source names the shadow among those that may show it.
    is_listed: bool
    #: The last entry that readers of the source may get; entry id -1: there is none.
    readable: Position = EARLIEST
    #: Bytes of its ledger.
    size_bytes: int = 0
    #: Of the node with the source's ledgers.
    version: int = -1
    #: Marker of the newest abort; EARLIEST: there was none.
    aborted_through: Position = EARLIEST
    aborts: tuple[Abort, ...] = ()
    #: Whether these are all up to ``aborted_through``.
    is_whole: bool = True


UNLISTED: Final = SourceWord(is_listed=False)


def aborts_behind(aborts: Iterable[Abort], known: Position) -> tuple[tuple[Abort, ...], bool]:
    """The first of those whose markers are behind ``known``, in the order of the markers, and whether that is all."""
    found = sorted((abort for abort in aborts if abort.marker > known), key=lambda abort: abort.marker)
    return tuple(found[:ABORTS_MAX]), len(found) <= ABORTS_MAX


def word_json(word: SourceWord) -> Document:
    """As brokers tell each other."""
    aborts: list[Json] = [[*abort.txn_id, *abort.first, *abort.marker] for abort in word.aborts]
    return {
        "listed": word.is_listed,
        "readable": [*word.readable],
        "bytes": word.size_bytes,
        "version": word.version,
        "abortedThrough": [*word.aborted_through],
        "aborts": aborts,
        "whole": word.is_whole,
    }


def word_of(document: Json) -> SourceWord:
    """The inverse. Raises RemoteError for what is none."""
    if not isinstance(document, dict) or not isinstance(document.get("listed"), bool):
        raise RemoteError("what a source says of itself is a JSON object with listed, readable and aborts")
    if not document["listed"]:
        return UNLISTED
    aborts = document.get("aborts")
    if not isinstance(aborts, list) or len(aborts) > ABORTS_MAX:
        raise RemoteError(f"aborts is a list of at most {ABORTS_MAX}")
    return SourceWord(
        is_listed=True,
        readable=_position(document.get("readable"), "readable"),
        size_bytes=_number(document.get("bytes"), "bytes"),
        version=_number(document.get("version"), "version"),
        aborted_through=_position(document.get("abortedThrough"), "abortedThrough"),
        aborts=tuple(map(_abort, aborts)),
        is_whole=document.get("whole") is True,
    )


def _number(value: Json, name: str) -> int:
    return number_of(value, name, LONG_MAX)


def _position(value: Json, name: str) -> Position:
    if not isinstance(value, list) or len(value) != 2:
        raise RemoteError(f"{name} is a list of a ledger id and an entry id")
    return Position(_number(value[0], name), _number(value[1], name))


def _abort(value: Json) -> Abort:
    if not isinstance(value, list) or len(value) != _NUMBERS_OF_ABORT:
        raise RemoteError("an abort is a list of six numbers")
    numbers = [_number(each, "a number of an abort") for each in value]
    return Abort(TxnId(*numbers[:2]), Position(*numbers[2:4]), Position(*numbers[4:]))
