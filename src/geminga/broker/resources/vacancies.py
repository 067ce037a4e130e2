"""How many more there may be where their number is limited, counted with those that are just being made.

Who makes something looks how many there are, which takes a while, and makes it, which takes longer: of a burst each
found that there was room. So what is about to be made takes a place before that, and keeps it until it is listed, or
known not to come. Places are this broker's own: of what others make at the same time it sees what is listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType

from geminga.model.errors import PreconditionFailedError


class Vacancies:
    """See the module."""

    __slots__ = ("_scopes",)

    def __init__(self) -> None:
        #: Where the number is limited -> its places; here while somebody has one or asks for one.
        self._scopes: dict[str, _Scope] = {}

    async def take(
        self,
        scope: str,
        names: Collection[str],
        most: int,
        listed: Callable[[], Awaitable[Collection[str]]],
        *,
        refusal: str,
    ) -> TakenPlaces:
        """Places for ``names``, which are made in the block. Raises PreconditionFailedError if they are too many.

        Names that are there, or for which somebody has a place, take no more of them. ``listed``: what is there; it is
        asked once for all who wait. Raises what that raises.
        """
        places = self._scopes.setdefault(scope, _Scope())
        places.askers += 1
        asked = places.listings
        try:
            async with places.turn:
                # One that was begun before may have what was deleted since.
                if places.listings == asked or places.listed is None:
                    places.listings += 1
                    places.listed = None
                    places.taken = [each for each in places.taken if not each.is_over]
                    places.listed = frozenset(await listed())
                if len(places.listed.union(names, *(each.names for each in places.taken))) > most:
                    raise PreconditionFailedError(refusal)
                taken = TakenPlaces(names, lambda: self._forget(scope))
                places.taken.append(taken)
                return taken
        finally:
            places.askers -= 1
            self._forget(scope)

    def _forget(self, scope: str) -> None:
        places = self._scopes.get(scope)
        if places is not None and not places.askers and all(each.is_over for each in places.taken):
            del self._scopes[scope]


class TakenPlaces:
    """Places of what is being made, while the block runs."""

    __slots__ = ("_over", "is_over", "names")

    def __init__(self, names: Collection[str], over: Callable[[], None]) -> None:
        self._over = over
        self.names = names
        #: They are made, and listed from now on; or they are not.
        self.is_over = False

    def __enter__(self) -> None:
        """Nothing is left to be done."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.is_over = True
        self._over()


class _Scope:
    __slots__ = ("askers", "listed", "listings", "taken", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        #: Who waits for the turn, or has it.
        self.askers = 0
        #: Times that what is there was asked for, begun ones.
        self.listings = 0
        #: What was there the last time; None: it was not told.
        self.listed: frozenset[str] | None = None
        #: Also those that are over, until what is there is asked for again: it may not have had them yet.
        self.taken: list[TakenPlaces] = []
