"""Copies of an entry: what was asked for, against the bookies that there are."""

from __future__ import annotations

from typing import NamedTuple


class Quorums(NamedTuple):
    """Ensemble size, write quorum and ack quorum: numbers of bookies."""

    ensemble: int
    write: int
    ack: int


def fit_quorums(asked: Quorums, bookies: int) -> Quorums:
    """The largest quorums up to ``asked`` that ``bookies`` bookies can meet: ack <= write <= ensemble <= bookies."""
    ensemble = min(asked.ensemble, bookies)
    write = min(asked.write, ensemble)
    return Quorums(ensemble, write, min(asked.ack, write))
