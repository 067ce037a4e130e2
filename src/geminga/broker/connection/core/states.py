"""How far a connection is, as one value: what is taken from its client, and what may happen next. Pure.

::

    NEW --ACCEPTED--> GREETING --WELCOMED--> SERVING
                         |                      |
                 LOST, frames left      LOST, frames left
                         v                      v
                   GREETING_LEFT --WELCOMED--> LEFT        in each of them, CLOSED leads to CLOSING,
                         |                      |          and where the peer has left, to CLOSING_LEFT;
                         +-------- DONE --------+          DONE leads to GONE from everywhere

A peer that is gone may have left frames that were read and not handled: they are what it wanted, and are handled before
its connection is over. Why nothing is read is another question, with several answers at a time
(:mod:`.read_gate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class Takes(Enum):
    """Which commands are taken."""

    NOTHING = auto()
    #: CONNECT and AUTH_RESPONSE; any other breaks the protocol.
    HANDSHAKE = auto()
    ALL = auto()


class Event(Enum):
    """What happens to a connection."""

    #: Each is there once: Enum's own hash is that of the name, by a function of Python.
    __hash__ = object.__hash__

    #: It has a transport.
    ACCEPTED = auto()
    #: It is known who is there.
    WELCOMED = auto()
    #: The peer is gone, and frames of it are left.
    LOST = auto()
    #: This side ends it, at once or when all is written.
    CLOSED = auto()
    #: Nothing is left of it.
    DONE = auto()


class State(Enum):
    """See the module. What is asked for each command is an attribute: a property would cost more than the answer."""

    __hash__ = object.__hash__

    #                what it is                                              takes             written ended  left
    NEW = ("no transport yet", Takes.NOTHING, False, False, False)
    GREETING = ("who is there is not known yet", Takes.HANDSHAKE, True, False, False)
    SERVING = ("it is known", Takes.ALL, True, False, False)
    GREETING_LEFT = ("the peer is gone, what is left is of one who is not known", Takes.HANDSHAKE, False, False, True)
    LEFT = ("the peer is gone, what is left of it is handled", Takes.ALL, False, False, True)
    CLOSING = ("ended from here, the transport is about to end", Takes.NOTHING, False, True, False)
    CLOSING_LEFT = ("ended from here when the peer was gone", Takes.NOTHING, False, True, True)
    GONE = ("over", Takes.NOTHING, False, True, False)

    def __init__(self, what: str, takes: Takes, is_written: bool, is_closed: bool, has_left: bool) -> None:
        #: In words, which also tell states apart that are alike in the rest.
        self.what = what
        self.takes = takes
        self.is_connected = takes is Takes.ALL
        #: What is written reaches the peer, and it is read as far as the gate is open.
        self.is_written = is_written
        #: Nothing is handled any more.
        self.is_closed = is_closed
        #: The peer is gone: its connection's next turn may be the last.
        self.has_left = has_left

    def after(self, event: Event) -> State:
        """The state that follows; what can not happen in it, or says nothing new, changes nothing."""
        return _AFTER[event].get(self, self)


_ENDED: Final = {
    State.NEW: State.CLOSING,
    State.GREETING: State.CLOSING,
    State.SERVING: State.CLOSING,
    State.GREETING_LEFT: State.CLOSING_LEFT,
    State.LEFT: State.CLOSING_LEFT,
}
_AFTER: Final[Mapping[Event, Mapping[State, State]]] = MappingProxyType(
    {
        Event.ACCEPTED: {State.NEW: State.GREETING},
        Event.WELCOMED: {State.GREETING: State.SERVING, State.GREETING_LEFT: State.LEFT},
        Event.LOST: {State.GREETING: State.GREETING_LEFT, State.SERVING: State.LEFT},
        Event.CLOSED: _ENDED,
        Event.DONE: dict.fromkeys(State, State.GONE),
    }
)
