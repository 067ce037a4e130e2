"""What is asked of the metadata store about a bundle is asked once at a time."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.ownership import questions
from geminga.broker.ownership.core.bundles import Bundle, whole
from geminga.broker.ownership.ports import HERE, Unknown
from geminga.broker.ownership.questions import Questions
from geminga.model.errors import MetadataError
from geminga.sim import run


def a_bundle(namespace: str = "tenant/ns") -> Bundle:
    return next(iter(whole(namespace).all()))


class _Store:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def ask(self):
        self.asked += 1
        return await self.answer


def test_who_asks_the_same_meanwhile_shares_the_answer_though_the_first_goes_away() -> None:
    async def story(world):
        asked, store = Questions(None), _Store()
        first = asyncio.ensure_future(asked.once("owner", a_bundle(), store.ask))
        second = asyncio.ensure_future(asked.once("owner", a_bundle(), store.ask))
        another = asyncio.ensure_future(asked.once("acquire", a_bundle(), store.ask))
        await world.sleep(0.1)
        assert store.asked == 2, "another kind is another question"
        first.cancel()
        await world.sleep(0.1)
        store.answer.set_result(HERE)
        assert [await second, await another] == [HERE, HERE]
        assert await asked.once("owner", a_bundle(), store.ask) is HERE
        assert store.asked == 3, "what was answered is asked again"

    run(story, seed=1)


def test_an_error_is_told_to_all_who_asked_and_more_than_the_limit_is_unknown(monkeypatch) -> None:
    monkeypatch.setattr(questions, "QUESTIONS_MAX", 1)

    async def story(world):
        asked, store = Questions(None), _Store()
        both = [asyncio.ensure_future(asked.once("owner", a_bundle(), store.ask)) for _ in range(2)]
        await world.sleep(0.1)
        assert isinstance(await asked.once("owner", a_bundle("tenant/other"), store.ask), Unknown)
        store.answer.set_exception(MetadataError("away"))
        for one in both:
            with pytest.raises(MetadataError, match="away"):
                await one

    run(story, seed=1)


def test_settled_returns_when_nothing_of_that_kind_is_under_way() -> None:
    async def story(world):
        asked, store = Questions(None), _Store()
        await asked.settled("acquire", a_bundle())
        asking = asyncio.ensure_future(asked.once("acquire", a_bundle(), store.ask))
        await world.sleep(0.1)
        settled = asyncio.ensure_future(asked.settled("acquire", a_bundle()))
        await asked.settled("owner", a_bundle())
        await world.sleep(0.1)
        assert not settled.done()
        store.answer.set_result(None)
        await asyncio.wait_for(settled, 1)
        assert await asking is None

    run(story, seed=1)
