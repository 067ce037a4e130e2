"""Records of a topic whose schema changes, as the official client writes them."""

from __future__ import annotations

from pulsar.schema import Integer, Record, String


class Fact(Record):
    name = String(required=True)


class LongFact(Record):
    """Fits where :class:`Fact` was."""

    name = String(required=True)
    size = Integer(required_default=True)


class OtherFact(Record):
    """Fits nowhere."""

    name = Integer(required=True)
