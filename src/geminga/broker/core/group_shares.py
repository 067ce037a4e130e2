"""How brokers share the limit of a resource group: what each may use until the next look. Pure.

Each broker writes what it has (its share), what it used and whether its share held somebody, all into one document per
group, by compare-and-set. What it takes next is the lesser of what is fair and what nobody else has: so the shares
never come to more than the limit, whoever looks when, but for the floors.

Fair is max-min: whoever needs less than an equal part has what it needs, and some room to grow; whoever is held shares
the rest equally with the others that are. What nobody needs is divided equally, for what may come. A broker's floor,
a part of :data:`FLOOR_PART` of the limit, is its own from the moment it comes, so that nobody waits to be noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

#: All floors together are such a part of the limit.
FLOOR_PART: Final = 20
#: What was used is expected to grow by so much, as a part, before the next look.
GROWTH_PART: Final = 4


class Use(NamedTuple):
    """One broker's part of one limit. Units: messages or bytes per second."""

    #: What it may use now.
    share: int
    #: What it used, per second, since its look before.
    used: int
    #: Whether its share held anybody since then.
    is_held: bool


def floor_of(limit: int, brokers: int) -> int:
    """What a broker may use however much the others do; at least 1."""
    return max(1, limit // (FLOOR_PART * max(1, brokers)))


def fair_shares(limit: int, uses: Mapping[str, Use]) -> dict[str, int]:
    """What each of the brokers should have of ``limit``; together never more, but for floors of at least 1."""
    floor = floor_of(limit, len(uses))
    wanted = {
        name: limit if use.is_held else max(floor, use.used + use.used // GROWTH_PART) for name, use in uses.items()
    }
    shares: dict[str, int] = {}
    left, waiting = limit, sorted(uses, key=lambda name: (wanted[name], name))
    while waiting:
        name = waiting.pop(0)
        shares[name] = max(1, min(wanted[name], left // (len(waiting) + 1)))
        left -= shares[name]
    for number, name in enumerate(sorted(shares)):
        # The first ones have what does not divide.
        more = max(0, left) // len(shares) + (number < max(0, left) % len(shares))
        shares[name] += more
    return shares


def next_share(limit: int, name: str, uses: Mapping[str, Use]) -> int:
    """What broker ``name``, which is among ``uses``, takes now: what is fair, as far as nobody else has it."""
    taken = sum(use.share for other, use in uses.items() if other != name)
    free = limit - taken
    return max(floor_of(limit, len(uses)), min(fair_shares(limit, uses)[name], free))
