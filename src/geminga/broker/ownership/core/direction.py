"""Where a lookup or a request for a topic goes, by who owns it. Pure.

Whoever was sent here with authority is not sent on: brokers that disagree would pass a client round in a circle. It is
told to come again instead, when they agree. Who is sent to the leader comes without authority, and is sent on from
there to whom that one chose. Brokers that take each other for the leader would pass it round, for as long as they do:
clients follow a limited number of redirections.
"""

from __future__ import annotations

from enum import Enum, auto

from geminga.broker.ownership.ports import Elsewhere, Here, Owner


class Direction(Enum):
    """What is done with somebody who wants a topic."""

    #: It is served here.
    STAY = auto()
    #: It is served there: connect.
    CONNECT_THERE = auto()
    #: Ask there; with authority unless that broker is to choose (``Elsewhere.is_chosen``).
    ASK_THERE = auto()
    #: Nobody can tell: try again later.
    TRY_AGAIN = auto()


def direct_lookup(owner: Owner, *, is_authoritative: bool) -> Direction:
    """What a lookup is answered. An owner is named whoever asks: to be told where it is leads nobody in a circle."""
    match owner:
        case Here():
            return Direction.STAY
        case Elsewhere(is_owner=True):
            return Direction.CONNECT_THERE
        case Elsewhere(is_owner=False) if not is_authoritative:
            return Direction.ASK_THERE
    return Direction.TRY_AGAIN


def direct_request(owner: Owner, *, is_authoritative: bool) -> Direction:
    """What a request that acts on the topic is answered: it is sent on once."""
    match owner:
        case Here():
            return Direction.STAY
        case Elsewhere() if not is_authoritative:
            return Direction.ASK_THERE
    return Direction.TRY_AGAIN
