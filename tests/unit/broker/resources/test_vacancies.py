"""Places where their number is limited: who is making something counts, until it is listed or known not to come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from geminga.broker.resources.vacancies import TakenPlaces, Vacancies
from geminga.model.errors import PreconditionFailedError, UnavailableError
from support.house.waiting import turns


class Shelf:
    """What is there, and how often that was asked."""

    def __init__(self, *names: str) -> None:
        self.names = {*names}
        self.asked = 0
        self.may_tell = asyncio.Event()
        self.may_tell.set()
        self.error: Exception | None = None

    async def listed(self) -> list[str]:
        self.asked += 1
        found = [*self.names]
        await turns(1)
        await self.may_tell.wait()
        if self.error is not None:
            raise self.error
        return found


def take(vacancies: Vacancies, shelf: Shelf, *names: str, most: int) -> Coroutine[None, None, TakenPlaces]:
    return vacancies.take("shelf", names, most, shelf.listed, refusal="full")


async def put(vacancies: Vacancies, shelf: Shelf, *names: str, most: int) -> None:
    with await take(vacancies, shelf, *names, most=most):
        await turns()
        shelf.names.update(names)


def test_a_burst_takes_exactly_the_places_that_there_are_and_asks_once() -> None:
    async def scenario() -> None:
        shelf, vacancies = Shelf("a"), Vacancies()
        outcomes = await asyncio.gather(
            *(put(vacancies, shelf, f"n{number}", most=4) for number in range(9)), return_exceptions=True
        )
        assert [str(outcome) for outcome in outcomes] == ["None"] * 3 + ["full"] * 6
        # The first one asks at once, for itself; the others came meanwhile.
        assert (len(shelf.names), shelf.asked) == (4, 2)
        assert not vacancies._scopes

    asyncio.run(scenario())


def test_names_that_are_there_or_are_being_made_take_no_more_places() -> None:
    async def scenario() -> None:
        shelf, vacancies = Shelf("a"), Vacancies()
        first = await take(vacancies, shelf, "b", "c", most=3)
        again = await take(vacancies, shelf, "a", "c", most=3)
        with pytest.raises(PreconditionFailedError, match="full"):
            await take(vacancies, shelf, "d", most=3)
        with first:
            """Nothing came of it."""
        with pytest.raises(PreconditionFailedError):
            await take(vacancies, shelf, "d", "e", most=3)
        with again, await take(vacancies, shelf, "d", most=3):
            shelf.names |= {"c", "d"}
        assert not vacancies._scopes

    asyncio.run(scenario())


def test_what_is_made_while_it_is_asked_what_there_is_counts_and_what_was_deleted_before_does_not() -> None:
    async def scenario() -> None:
        shelf, vacancies = Shelf("a"), Vacancies()
        made = await take(vacancies, shelf, "b", most=2)
        shelf.may_tell.clear()
        asking = asyncio.ensure_future(take(vacancies, shelf, "c", most=2))
        await turns()
        with made:
            shelf.names.add("b")
        shelf.names.remove("a")
        late = asyncio.ensure_future(take(vacancies, shelf, "d", most=2))
        await turns()
        shelf.may_tell.set()
        # It was asked before both.
        with pytest.raises(PreconditionFailedError):
            await asking
        with await late:
            shelf.names.add("d")
        assert shelf.names == {"b", "d"}
        assert not vacancies._scopes

    asyncio.run(scenario())


def test_who_can_not_be_told_what_there_is_has_no_place_and_the_next_one_asks_again() -> None:
    async def scenario() -> None:
        shelf, vacancies = Shelf(), Vacancies()
        shelf.may_tell.clear()
        shelf.error = UnavailableError("not now")
        asking = [asyncio.ensure_future(take(vacancies, shelf, "a", most=1)) for _ in range(3)]
        await turns()
        asking[1].cancel()
        shelf.may_tell.set()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            UnavailableError,
            asyncio.CancelledError,
            UnavailableError,
        ]
        assert not vacancies._scopes
        shelf.error = None
        await put(vacancies, shelf, "a", most=1)
        assert shelf.names == {"a"}

    asyncio.run(scenario())
