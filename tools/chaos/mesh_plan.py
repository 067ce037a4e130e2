"""Which link between clusters is cut when, and which process of which cluster is killed: drawn from a seed. Pure.

Links fail as they like, several at a time. Of processes one is away at a time, as in :mod:`tools.chaos.plan`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from typing import Final, NamedTuple

from tools.chaos.plan import SHORT_S, bookie_name, broker_name

#: Seconds between two cuts, on average; and how long one lasts.
CUT_EVERY_S: Final = 4.0
CUT_S: Final = (0.2, 30.0)


class Cut(NamedTuple):
    """One, seconds since the beginning."""

    source: str
    target: str
    at_s: float
    until_s: float
    #: Nothing passes; otherwise connections are reset, too.
    hangs: bool


class Kill(NamedTuple):
    """One: not before ``at_s``, and then for ``away_s``."""

    cluster: str
    who: str
    at_s: float
    away_s: float


def mesh_plan(
    seed: int, clusters: Sequence[str], *, cuts: int, kills: int, bookies: int, brokers: int, session_s: float
) -> tuple[list[Cut], list[Kill]]:
    """In order of their beginnings; no link is cut while it is."""
    rng = random.Random(seed)
    span_s = CUT_EVERY_S * max(cuts, kills)
    links = [*permutations(clusters, 2)]
    free_s = dict.fromkeys(links, 0.0)
    made: list[Cut] = []
    for at_s in sorted(rng.uniform(0.0, span_s) for _ in range(cuts)):
        link = rng.choice(links)
        begins_s = max(at_s, free_s[link])
        ends_s = begins_s + rng.uniform(*CUT_S)
        # A moment in which it works.
        free_s[link] = ends_s + rng.uniform(0.0, CUT_EVERY_S)
        made.append(Cut(*link, begins_s, ends_s, rng.random() < 0.5))
    killed: list[Kill] = []
    who = [*map(bookie_name, range(bookies)), *(*map(broker_name, range(brokers)),) * max(1, bookies // brokers)]
    for at_s in sorted(rng.uniform(0.0, span_s) for _ in range(kills)):
        long_s = (session_s + 0.5, session_s * 1.5)
        away_s = rng.uniform(*(SHORT_S if rng.random() < 0.5 else long_s))
        killed.append(Kill(rng.choice(clusters), rng.choice(who), at_s, away_s))
    return sorted(made, key=lambda cut: cut.at_s), killed
