"""Which topic is loaded next, where more are asked for than are loaded at the same time. Pure.

Loads share one processor: of thousands that begin together none is done before nearly all are, and clients have given
up by then. So few run at a time, and who has waited longest comes next.

- Topics that clients wait for come before those that only administrators look at, which get one of so many turns.
- Namespaces take turns: ten thousand topics of one do not hold up the only one of another.
- A load that takes long waits for something else than the processor: it makes room for another one.
- When as many wait as may, the namespace with most of them gives one up, the last that came.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from geminga.model import invariant

#: A load that began so many seconds ago does not count among those that are quick.
SLOW_S: Final = 5.0
#: Loads that wait.
WAITING_MAX: Final = 20_000
#: So many turns of clients, while any wait, are followed by one of the others.
CLIENTS_TURNS: Final = 8


class LoadQueue:
    """See the module. Keys are names of topics; time is in seconds, and never goes back."""

    __slots__ = (
        "_at_once_max",
        "_clients",
        "_clients_turns",
        "_others",
        "_quick",
        "_slow",
        "_waiting_max",
    )

    def __init__(self, at_once_max: int, *, waiting_max: int = WAITING_MAX) -> None:
        """``at_once_max``: of those that run and are quick."""
        self._at_once_max = at_once_max
        self._waiting_max = waiting_max
        #: Running, with when they began, oldest first.
        self._quick: OrderedDict[str, float] = OrderedDict()
        #: Running for longer than :data:`SLOW_S`.
        self._slow: set[str] = set()
        self._clients = _Line()
        self._others = _Line()
        #: In a row, while others waited.
        self._clients_turns = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._clients) + len(self._others)

    def is_waiting(self, key: str) -> bool:
        """Whether it has not begun."""
        return key in self._clients or key in self._others

    @property
    def running(self) -> int:
        """How many run."""
        return len(self._quick) + len(self._slow)

    def begin(self, key: str, now_s: float) -> None:
        """It runs from now on, whatever the limits say: another load may need it in order to end."""
        invariant(key not in self._quick and key not in self._slow, f"{key} is loaded twice at a time")
        self._quick[key] = now_s

    def wait(self, key: str, namespace: str, *, is_for_client: bool) -> str | None:
        """It waits for its turn. What is refused for it, which may be itself; None: nothing is."""
        line = self._clients if is_for_client else self._others
        line.add(key, namespace)
        if len(self) <= self._waiting_max:
            return None
        # Those that no client waits for go first.
        return (self._others if len(self._others) else self._clients).give_up_one()

    def client_waits(self, key: str) -> None:
        """A client waits for it now, too."""
        namespace = self._others.namespace_of(key)
        if namespace is not None:
            self._others.remove(key)
            self._clients.add(key, namespace)

    def leave(self, key: str) -> None:
        """Nobody wants it any more, and it has not begun."""
        self._clients.remove(key)
        self._others.remove(key)

    def ended(self, key: str) -> None:
        """It does not run any more."""
        if self._quick.pop(key, None) is None:
            self._slow.discard(key)

    def next(self, now_s: float, running_max: int) -> str | None:
        """What begins now, as if :meth:`begin` had been called; None: nothing waits, or may begin.

        ``running_max``: of all that run, however long.
        """
        self._see_slow(now_s)
        if len(self._quick) >= self._at_once_max or self.running >= running_max or not len(self):
            return None
        if not len(self._clients) or (len(self._others) and self._clients_turns >= CLIENTS_TURNS):
            self._clients_turns = 0
            key = self._others.take()
        else:
            self._clients_turns = self._clients_turns + 1 if len(self._others) else 0
            key = self._clients.take()
        self.begin(key, now_s)
        return key

    def due_s(self, running_max: int) -> float | None:
        """When something may begin though nothing ended; None: then not."""
        if not len(self) or not self._quick or self.running >= running_max:
            return None
        return next(iter(self._quick.values())) + SLOW_S

    def _see_slow(self, now_s: float) -> None:
        while self._quick:
            key, began_s = next(iter(self._quick.items()))
            if now_s - began_s < SLOW_S:
                break
            del self._quick[key]
            self._slow.add(key)


class _Line:
    """Who waits, by namespace; namespaces take turns, each in the order in which its topics came."""

    __slots__ = ("_by_namespace", "_namespaces")

    def __init__(self) -> None:
        self._by_namespace: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        #: Of each that waits.
        self._namespaces: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, key: str) -> bool:
        return key in self._namespaces

    def namespace_of(self, key: str) -> str | None:
        return self._namespaces.get(key)

    def add(self, key: str, namespace: str) -> None:
        invariant(key not in self._namespaces, f"{key} waits twice")
        self._namespaces[key] = namespace
        self._by_namespace.setdefault(namespace, OrderedDict())[key] = None

    def remove(self, key: str) -> None:
        namespace = self._namespaces.pop(key, None)
        if namespace is not None:
            keys = self._by_namespace[namespace]
            del keys[key]
            if not keys:
                del self._by_namespace[namespace]

    def take(self) -> str:
        """The next one; its namespace's next turn comes after all others'."""
        namespace, keys = next(iter(self._by_namespace.items()))
        key = next(iter(keys))
        self._by_namespace.move_to_end(namespace)
        self.remove(key)
        return key

    def give_up_one(self) -> str:
        """The last that came of the namespace that has most."""
        keys = max(self._by_namespace.values(), key=len)
        key = next(reversed(keys))
        self.remove(key)
        return key
