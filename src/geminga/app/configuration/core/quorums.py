"""Copies of an entry: what was asked for, against the bookies that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LedgerQuorums(NamedTuple):
    """Ensemble size, write quorum and ack quorum: numbers of bookies."""

    ensemble: int
    write: int
    ack: int


def default_quorums(bookies: int) -> LedgerQuorums:
    """What holds where nothing is said: one copy with one bookie, two with several.

    Two of three, as in Pulsar's ``broker.conf``, and not three of three: so a new ledger finds its ensemble, and a
    failing bookie its replacement, while one of them is away.
    """
    return LedgerQuorums(1, 1, 1) if bookies == 1 else LedgerQuorums(2, 2, 2)


def meet_quorums(said: Sequence[int | None], bookies: int) -> tuple[LedgerQuorums, Sequence[int]]:
    """What holds with ``bookies`` bookies, given what was said (None: nothing), and which of it could not be met.

    What nobody said is made to fit what was. The numbers of what could not be met are places in ``said``.
    """
    asked = LedgerQuorums(
        *(default if one is None else one for one, default in zip(said, default_quorums(bookies), strict=True))
    )
    met = fit_quorums(asked, bookies)
    return met, [place for place, one in enumerate(said) if one is not None and one != met[place]]


def fit_quorums(asked: LedgerQuorums, bookies: int) -> LedgerQuorums:
    """The largest quorums up to ``asked`` that ``bookies`` bookies can meet: ack <= write <= ensemble <= bookies."""
    ensemble = min(asked.ensemble, bookies)
    write = min(asked.write, ensemble)
    return LedgerQuorums(ensemble, write, min(asked.ack, write))
