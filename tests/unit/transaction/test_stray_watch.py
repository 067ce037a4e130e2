"""One task asks about what is held, while anything is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.model.txn_id import Standing, TxnId
from geminga.runtime import wait_ms
from geminga.transaction.strays import StrayWatch

TOPIC = "persistent://public/default/topic"


class Story:
    """What is held, and what coordinators say of it."""

    def __init__(self) -> None:
        self.held = {TxnId(0, 1), TxnId(0, 2)}
        self.standings = dict.fromkeys(self.held, Standing.TAKING)
        self.asked = 0
        self.watch = StrayWatch(self.list_held, TOPIC, self, self.abort, name=TOPIC, part=self)

    def list_held(self) -> list[TxnId]:
        self.asked += 1
        return sorted(self.held)

    def standing(self, txn_id: TxnId, participant: object) -> Standing | None:
        return self.standings[txn_id]

    async def ask_standing(self, txn_id: TxnId, participant: object) -> Standing:
        return self.standings[txn_id]

    async def find_standing(self, txn_id: TxnId, participant: object) -> Standing:
        return self.standings[txn_id]

    async def abort(self, txn_id: TxnId) -> None:
        self.held.discard(txn_id)

    def broke(self, what: str, error: BaseException) -> None:
        raise error


def told(scenario: Callable[[Story], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            await scenario(Story())

        await world.node("broker").run(on_node)

    sim.run(main)


def test_what_is_over_is_aborted_and_nobody_asks_once_nothing_is_held() -> None:
    async def scenario(story: Story) -> None:
        story.watch.watch(first_ms=0)
        story.watch.watch(first_ms=0)
        await wait_ms(1)
        assert story.asked == 1
        story.standings[TxnId(0, 1)] = Standing.OVER
        await wait_ms(2_000)
        assert story.held == {TxnId(0, 2)}
        story.standings[TxnId(0, 2)] = Standing.OVER
        await wait_ms(20_000)
        assert story.held == set()
        asked = story.asked
        await wait_ms(60_000)
        assert story.asked == asked
        story.held.add(TxnId(0, 1))
        story.watch.watch(first_ms=500)
        await wait_ms(501)
        assert story.held == set(), "it begins again when something is held again"

    told(scenario)


def test_nobody_asks_after_the_end() -> None:
    async def scenario(story: Story) -> None:
        story.watch.watch(first_ms=0)
        await wait_ms(1)
        story.watch.stop()
        story.watch.watch(first_ms=0)
        await wait_ms(60_000)
        assert (story.asked, story.watch.is_stopped) == (1, True)

    told(scenario)
