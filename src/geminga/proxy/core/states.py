"""How far a client's connection to the proxy is, as one value: what is taken from it, what may happen next. Pure.

::

    NEW --ACCEPTED--> GREETING --KNOWN--> ANSWERING          who asks where topics are
                         |
                     KNOWN_FOR_BROKER
                         v
                      REACHING --REACHED--> RELAYING         bytes of a broker and a client, unread
    from each of them ENDED leads to OVER

A client that names a broker (``proxy_to_broker_url``) is connected to that one, or to none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class Taking(Enum):
    """What is taken from the client."""

    #: It waits, unread.
    NOTHING = auto()
    #: CONNECT and AUTH_RESPONSE.
    HANDSHAKE = auto()
    #: Requests that brokers are asked for it.
    REQUESTS = auto()
    #: All bytes, for its broker.
    BYTES = auto()


class Milestone(Enum):
    """What happens to a connection."""

    #: It has a transport.
    ACCEPTED = auto()
    #: Who is there is known, and no broker was named.
    KNOWN = auto()
    #: The same, of one that named a broker.
    KNOWN_FOR_BROKER = auto()
    #: The broker has answered CONNECTED.
    REACHED = auto()
    #: It ends, whoever ended it.
    ENDED = auto()


class State(Enum):
    """See the module."""

    NEW = ("no transport yet", Taking.NOTHING)
    GREETING = ("who is there is not known", Taking.HANDSHAKE)
    ANSWERING = ("it asks where topics are", Taking.REQUESTS)
    REACHING = ("its broker is connected to", Taking.NOTHING)
    RELAYING = ("it speaks with its broker", Taking.BYTES)
    OVER = ("it has ended", Taking.NOTHING)

    def __init__(self, what: str, takes: Taking) -> None:
        #: In words, which also tell states apart that take the same.
        self.what = what
        self.takes = takes

    def after(self, event: Milestone) -> State:
        """The state that follows; what can not happen in it changes nothing."""
        return _AFTER[event].get(self, self)


_AFTER: Final[Mapping[Milestone, Mapping[State, State]]] = MappingProxyType(
    {
        Milestone.ACCEPTED: {State.NEW: State.GREETING},
        Milestone.KNOWN: {State.GREETING: State.ANSWERING},
        Milestone.KNOWN_FOR_BROKER: {State.GREETING: State.REACHING},
        Milestone.REACHED: {State.REACHING: State.RELAYING},
        Milestone.ENDED: dict.fromkeys(State, State.OVER),
    }
)
