"""Who may publish to a topic: access modes Shared, Exclusive, WaitForExclusive, ExclusiveWithFencing.

Exclusive access has an epoch that grows each time it is granted anew. A producer that comes back with an older
epoch was overtaken while it was away: it is fenced for good. The topic stores the epoch before it answers.

Producers are told apart by the caller's tokens (any hashable object); the core never looks into them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar

from geminga.model.errors import NotAllowedError, ProducerBusyError, ProducerFencedError, invariant

Token = TypeVar("Token", bound=Hashable)

#: Producers that may wait for exclusive access to one topic.
WAITING_PRODUCERS_MAX: Final = 10_000
#: The highest epoch that a producer may say it was granted where the topic knows of none as high (it may have been made
#: anew). Each grant adds one: those that follow are higher, and come back with theirs.
TOPIC_EPOCH_MAX: Final = 1 << 62


class AccessMode(IntEnum):
    """``ProducerAccessMode`` of the protocol."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@dataclass(frozen=True, slots=True)
class Granted(Generic[Token]):
    """The producer may publish once ``epoch``, if there is one, is stored; ``fenced`` are out, connected or waiting."""

    token: Token
    epoch: int | None
    fenced: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """The producer waits; it is granted by a later :meth:`ProducerAccess.left`."""


class ProducerAccess(Generic[Token]):
    """The producers of one topic and the access they hold."""

    __slots__ = ("_connected", "_exclusive", "_exclusive_name", "_is_over", "_waiting", "epoch")

    def __init__(self, epoch: int | None) -> None:
        #: Epoch of the newest exclusive access; None: there never was one.
        self.epoch = epoch
        self._connected: dict[Token, None] = {}
        #: The producer with exclusive access. Invariant: then it is the only one connected.
        self._exclusive: Token | None = None
        self._exclusive_name = ""
        #: Name and epoch of those that wait, the first of them first.
        self._waiting: dict[Token, tuple[str, int | None]] = {}
        self._is_over = False

    @property
    def is_exclusive(self) -> bool:
        """Whether a producer has the topic for itself."""
        return self._exclusive is not None

    @property
    def waiting_count(self) -> int:
        """Producers that wait for exclusive access."""
        return len(self._waiting)

    def requested(self, token: Token, name: str, mode: AccessMode, epoch: int | None) -> Granted[Token] | Queued:
        """A producer wants in; raises ProducerBusyError, ProducerFencedError or NotAllowedError.

        ``epoch`` is the one it was granted before, None on its first connection.
        """
        invariant(token not in self._connected, f"producer {name} asks for access that it has")
        if mode is AccessMode.SHARED:
            if self._exclusive is not None or self._waiting:
                raise ProducerBusyError(
                    f"Topic has an existing exclusive producer: {self._exclusive_name or 'waiting'}"
                )
            self._connected[token] = None
            return Granted(token, self.epoch)
        if epoch is not None and epoch < (self.epoch if self.epoch is not None else -1):
            raise ProducerFencedError(
                f"Topic epoch has already moved. Current epoch: {self.epoch}, producer epoch: {epoch}"
            )
        if epoch is not None and epoch > TOPIC_EPOCH_MAX and (self.epoch is None or epoch > self.epoch):
            raise NotAllowedError(f"topic_epoch {epoch} was never granted: the topic is at {self.epoch}")
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            fenced = tuple(self._connected) + tuple(self._waiting)
            self._connected.clear()
            self._waiting.clear()
            self._exclusive = None
            return self._grant(token, name, epoch, fenced)
        if not self._connected:
            if mode is AccessMode.EXCLUSIVE and self._waiting:
                raise ProducerFencedError("Topic has producers that wait for exclusive access")
            return self._grant(token, name, epoch, ())
        if mode is AccessMode.EXCLUSIVE:
            if self._exclusive is not None:
                raise ProducerFencedError(f"Topic has an existing exclusive producer: {self._exclusive_name}")
            raise ProducerFencedError("Topic has existing shared producers")
        if len(self._waiting) >= WAITING_PRODUCERS_MAX:
            raise ProducerBusyError(f"{WAITING_PRODUCERS_MAX} producers wait for exclusive access already")
        self._waiting[token] = (name, epoch)
        return Queued()

    def left(self, token: Token) -> Granted[Token] | None:
        """A producer is gone, connected or waiting; the one that gets its place, if any."""
        if self._waiting.pop(token, None) is not None or token not in self._connected:
            return None
        del self._connected[token]
        if self._exclusive == token:
            self._exclusive = None
            self._exclusive_name = ""
        if self._connected or not self._waiting or self._is_over:
            return None
        following = next(iter(self._waiting))
        name, epoch = self._waiting.pop(following)
        return self._grant(following, name, epoch, ())

    def end(self) -> None:
        """Nobody who waits is given access any more: all of them go."""
        self._is_over = True

    def check_invariants(self) -> None:
        """Raise InvariantError if exclusive access is shared, or if somebody waits for nobody."""
        if self._exclusive is not None:
            invariant(list(self._connected) == [self._exclusive], "an exclusive producer is not alone")
        waits_for_nobody = self._waiting and not self._connected and not self._is_over
        invariant(not waits_for_nobody, "producers wait though nobody is connected")

    def _grant(self, token: Token, name: str, epoch: int | None, fenced: tuple[Token, ...]) -> Granted[Token]:
        if epoch is None or self.epoch is None or epoch < self.epoch:
            epoch = 0 if self.epoch is None else self.epoch + 1
        self.epoch = epoch
        self._connected[token] = None
        self._exclusive = token
        self._exclusive_name = name
        return Granted(token, epoch, fenced)
