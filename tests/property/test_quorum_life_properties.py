"""A managed ledger's life under changing quorums and bookies that go and come: what was confirmed is read, always."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga import sim
from geminga.bookkeeper import MemoryBookie
from geminga.managed_ledger import Persistence
from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import LedgerWorld, acknowledge, append, read_all

BOOKIES = 4

quorums = st.tuples(st.integers(1, BOOKIES + 1), st.integers(1, BOOKIES), st.integers(1, BOOKIES)).map(
    lambda sizes: sorted(sizes, reverse=True)
)
persistences = st.none() | st.builds(
    lambda sizes, rate: Persistence(*sizes, rate), quorums, st.sampled_from([0.0, 0.01, 2.0])
)
steps = st.one_of(
    st.tuples(st.just("policy"), persistences),
    st.tuples(st.just("fill"), st.integers(1, 12)),
    st.tuples(st.just("acknowledge"), st.integers(0, 40)),
    st.tuples(st.just("writable"), st.integers(0, BOOKIES - 1)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.3, 2.0])),
)


class QuorumLife:
    """What was confirmed and answered, by the plainest means."""

    def __init__(self, world: LedgerWorld) -> None:
        self.world = world
        self.policy: Persistence | None = None
        self.confirmed: list[bytes] = []
        self.positions: list = []
        self.acknowledged: set = set()
        self.count = 0

    async def start(self) -> None:
        self.ml = await self.world.reopen()
        self.ml.stored_as.set(self.policy)
        self.cursor = await self.ml.open_cursor("s", initial=EARLIEST)

    async def take(self, what: str, how) -> None:
        await getattr(self, what)(how)

    async def policy_(self, how) -> None:
        self.policy = how
        self.ml.stored_as.set(how)

    async def fill(self, how) -> None:
        payloads = [b"%06d" % (self.count + i) for i in range(how)]
        self.count += how
        before = {info.ledger_id for info in self.ml.ledgers.infos}
        policy = self.policy or Persistence(1, 1, 1, 2.0)
        for result in await append(self.ml, payloads):
            if result.error is not None:
                assert isinstance(result.error, GemingaError)
                continue
            for i in range(result.count):
                self.confirmed.append(payloads[result.index + i])
                self.positions.append((result.ledger_id, result.first_entry_id + i))
        for info in self.ml.ledgers.infos:
            if info.ledger_id not in before:
                metadata = (await self.world.bookkeeper.read_ledger(info.ledger_id)).metadata
                found = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
                assert found == (policy.ensemble_size, policy.write_quorum, policy.ack_quorum)

    async def acknowledge(self, how) -> None:
        if not self.positions:
            return
        position = self.ml.ledgers.position_at(how % len(self.positions))
        try:
            error = await acknowledge(self.cursor, [position])
        except StorageError as failure:
            error = failure
        # An error says that it may be lost, not that it is.
        if error is None:
            self.acknowledged.add(tuple(position))

    async def writable(self, how) -> None:
        bookie = list(self.world.bookies.values())[how]
        bookie.is_writable = not bookie.is_writable

    async def roll(self, _how) -> None:
        await self.ml.roll()

    async def restart(self, _how) -> None:
        await self.start()
        await self.check()

    async def sleep(self, how) -> None:
        await self.world.world.sleep(how)

    async def check(self) -> None:
        """As found by whoever opens it: all that was confirmed, in order, and nothing answered comes again."""
        reader = self.ml.new_non_durable_cursor("check", EARLIEST)
        assert await read_all(reader) == self.confirmed
        assert [tuple(self.ml.ledgers.position_at(i)) for i in range(len(self.positions))] == self.positions
        await reader.close()
        state = self.cursor.state
        for position in self.acknowledged:
            assert state.mark_delete >= position or state.acked.contains(*position)


@given(st.lists(steps, min_size=1, max_size=30))
def test_confirmed_entries_and_answered_acknowledgments_outlive_every_change_of_quorums(taken):
    async def story(sim_world):
        world = LedgerWorld(sim_world)
        for number in range(1, BOOKIES):
            world.bookies[f"b{number}"] = MemoryBookie()
        life = QuorumLife(world)
        await life.start()
        for what, how in taken:
            await life.take({"policy": "policy_"}.get(what, what), how)
        await life.restart(None)

    sim.run(story)
