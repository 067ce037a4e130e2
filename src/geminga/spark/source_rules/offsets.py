"""Where a query stands: the offset JSON, version 1.

``{"n":4,"t":{"persistent://p/n/a-partition-0":"123:45:0"},"v":1}``

===== ==============================================================================================================
key   value
===== ==============================================================================================================
``v`` 1
``t`` per topic or partition the *next unread* position ``ledger:entry:batchIndex``; ``-1:-1:0`` is its beginning
``n`` at most so many tasks a batch; fixed at the first run
``c`` optional: positions where this batch's ranges are cut into tasks, found while counting bytes
``d`` optional, of ranges over several ledgers: how many entries they have, and positions that divide them evenly
``f`` optional, of a query that was started by a time: that time in ms; rows published before it are left out
``s`` optional, in the first batch of a start by time: where each topic was started; in a later one, the beginning of
      a topic that is read for the first time, or was deleted and made anew: the batch begins there
===== ==============================================================================================================

The start of a query is symbolic and a pure function of the options, as Spark asks for it several times and uses the
last answer: ``{"init":"latest","v":1}``, ``"earliest"`` or ``{"time":ms}``.

Spark compares offsets as text, so keys are sorted and nothing in the text depends on the order of events. A batch is
the range [start, end). A topic that is not in the start is new and read from its beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from geminga.model.errors import LocalError

#: The version written, and the only one read.
VERSION: Final = 1
#: Ids are signed numbers of 64 bits.
_ID_MAX: Final = (1 << 63) - 1
_POSITION: Final = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(\d{1,9}))?")

LATEST: Final = "latest"
EARLIEST: Final = "earliest"


class OffsetError(LocalError):
    """An offset that can not be understood; the text says which part and what was expected."""


class ReadPosition(NamedTuple):
    """The next unread message: of an entry, the one at ``batch_index``. Ordered as messages are."""

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    @classmethod
    def parse(cls, text: object) -> Self:
        """From ``ledger:entry`` or ``ledger:entry:batchIndex``, or ``earliest``; raises OffsetError."""
        if text == EARLIEST:
            return cls(*BEGINNING)
        match = _POSITION.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise OffsetError(f"position {text!r}: expected ledger:entry:batchIndex, such as 123:45:0, or earliest")
        ledger_id, entry_id = int(match[1]), int(match[2])
        if not (-1 <= ledger_id <= _ID_MAX and -1 <= entry_id <= _ID_MAX):
            raise OffsetError(f"position {text!r}: expected a ledger and an entry from -1 to {_ID_MAX}")
        return cls(ledger_id, entry_id, int(match[3] or 0))

    @property
    def entry(self) -> tuple[int, int]:
        """(ledger id, entry id)."""
        return self.ledger_id, self.entry_id

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"


#: Before the first message of a topic.
BEGINNING: Final = ReadPosition(-1, -1, 0)


class Division(NamedTuple):
    """What is known of a range over several ledgers."""

    #: Entries in it.
    entries: int
    #: Between its pieces, which have about as many entries each.
    cuts: tuple[ReadPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset; see the module. ``init`` is None unless it is symbolic: latest, earliest or a time in ms."""

    topics: Mapping[str, ReadPosition] = field(default_factory=dict)
    #: At most so many tasks; 0: not fixed yet.
    tasks_max: int = 0
    cuts: Mapping[str, tuple[ReadPosition, ...]] = field(default_factory=dict)
    starts: Mapping[str, ReadPosition] = field(default_factory=dict)
    init: str | int | None = None
    divisions: Mapping[str, Division] = field(default_factory=dict)
    #: Rows published before it are left out, ms; of the query's first start, whatever the options say since.
    time_from_ms: int | None = None

    def to_dict(self) -> dict[str, object]:
        """What Spark makes JSON of: keys in order at every level."""
        if self.init is not None:
            return {"init": {"time": self.init} if isinstance(self.init, int) else self.init, "v": VERSION}
        found: dict[str, object] = {}
        cuts = {topic: [str(cut) for cut in self.cuts[topic]] for topic in sorted(self.cuts) if self.cuts[topic]}
        if cuts:
            found["c"] = cuts
        if self.divisions:
            found["d"] = {
                topic: [self.divisions[topic].entries, *map(str, self.divisions[topic].cuts)]
                for topic in sorted(self.divisions)
            }
        if self.time_from_ms is not None:
            found["f"] = self.time_from_ms
        if self.tasks_max:
            found["n"] = self.tasks_max
        if self.starts:
            found["s"] = {topic: str(self.starts[topic]) for topic in sorted(self.starts)}
        found["t"] = {topic: str(self.topics[topic]) for topic in sorted(self.topics)}
        found["v"] = VERSION
        return found

    def to_json(self) -> str:
        """The same as text, without spaces."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Raises OffsetError for what is no offset of this version."""
        if not isinstance(data, Mapping):
            raise OffsetError(f"an offset is an object, not {type(data).__name__}")
        version = data.get("v")
        if version != VERSION:
            raise OffsetError(f"an offset of version {version!r}: this version of Geminga reads version {VERSION}")
        try:
            return cls._of_parts(data)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise OffsetError(f"a part of an offset can not be read: {error!r}") from None

    @classmethod
    def _of_parts(cls, data: Mapping[str, Any]) -> Self:
        if "init" in data:
            init = data["init"]
            return cls(init=init["time"] if isinstance(init, Mapping) else init)
        return cls(
            topics=_positions(data.get("t"), "t"),
            tasks_max=int(data.get("n", 0)),
            cuts={topic: tuple(map(ReadPosition.parse, cuts)) for topic, cuts in data.get("c", {}).items()},
            starts=_positions(data.get("s", {}), "s"),
            divisions={
                topic: Division(int(entries), tuple(map(ReadPosition.parse, cuts)))
                for topic, (entries, *cuts) in data.get("d", {}).items()
            },
            time_from_ms=int(data["f"]) if "f" in data else None,
        )

    def start_of(self, topic: str, end: StreamOffset) -> ReadPosition | None:
        """Where the batch up to ``end`` begins in ``topic``; None: nothing of the topic is in it."""
        if self.init is None:  # what the end says is the beginning of a topic that was deleted and made anew
            return end.starts.get(topic, self.topics.get(topic, BEGINNING))
        if self.init == LATEST:
            return None
        return end.starts.get(topic, BEGINNING)

    def is_first_of(self, topic: str, end: StreamOffset) -> bool:
        """Whether the batch up to ``end`` is the first of ``topic``, and begins where that began, or at a time."""
        return self.init is not None or topic in end.starts or self.topics.get(topic, BEGINNING) == BEGINNING


def _positions(data: object, name: str) -> dict[str, ReadPosition]:
    if not isinstance(data, Mapping):
        raise OffsetError(f"{name!r} of an offset: expected an object of topics and positions")
    return {str(topic): ReadPosition.parse(position) for topic, position in data.items()}


def parse_positions(text: str) -> dict[str, ReadPosition]:
    """Topic -> position from what a user wrote: an offset JSON, or an object of topics and positions only.

    Raises OffsetError.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OffsetError(f"{text[:1000]!r}: neither earliest nor latest nor JSON ({error})") from None
    if isinstance(data, Mapping) and "t" in data and "v" in data:
        return dict(StreamOffset.from_dict(data).topics)
    return _positions(data, "offsets")
