"""Opening ledgers that a writer left open: fencing, finding the end, refusing to guess."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from geminga.bookkeeper import BookKeeperConfig, LocalBookiePool, MemoryBookie
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.bookkeeper.recovery import read_last_add_confirmed
from geminga.metadata import MetadataFaults
from geminga.model.bookie_port import LacResult
from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    LedgerFencedError,
    NoSuchLedgerError,
    UnknownEntryError,
)
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerState
from support.house.weekly_sample import sampled
from support.worlds.ledgers import (
    Appends,
    Cluster,
    appending,
    create,
    error_classes,
    filled,
    payloads,
    run_cluster,
    turn,
)

QUORUMS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (3, 2, 1), (3, 3, 3)]


@pytest.mark.parametrize("quorums", QUORUMS)
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_abandoned_ledger_is_closed_behind_its_last_entry(quorums, batch_size):
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 7), quorums=quorums)
        await turn()
        client = cluster.client(config=BookKeeperConfig(recovery_read_batch_size=batch_size))
        reader = await client.open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.is_closed) == (6, True)
        assert reader.length_bytes == sum(map(len, payloads(0, 7)))
        assert await reader.read_entries(0, 6) == payloads(0, 7)
        assert reader.metadata.state is LedgerState.CLOSED
        again = await cluster.client().open_ledger(handle.ledger_id)
        assert again.metadata == reader.metadata

    run_cluster(main)


@pytest.mark.parametrize("quorums", QUORUMS)
def test_empty_ledger_is_closed_empty_and_stays_fenced(quorums):
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes) == (-1, 0)
        assert isinstance(await Appends(handle).append_and_wait(b"late"), LedgerFencedError)

    run_cluster(main)


def test_entry_on_one_bookie_only_is_kept_and_copied():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 2))
        await turn()
        ensemble = handle.metadata.last_fragment.ensemble
        # Not acknowledged: recovery may drop or keep it. Its holder is the first to be asked, so it is kept.
        for name in (ensemble[0], ensemble[2]):
            cluster.bookies[name].add_error = DiskIOError("broken")
        appends.append(*payloads(2, 1))
        for bookie in cluster.bookies.values():
            bookie.add_error = None
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 2
        await turn(3)
        entries = {cluster.bookies[name].entry(handle.ledger_id, 2) for name in ensemble}
        assert len(entries) == 1
        assert None not in entries

    run_cluster(main)


@pytest.mark.parametrize("down", [1, 2])
def test_recovery_goes_on_without_one_bookie_and_waits_without_two(down):
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 5), quorums=(3, 3, 2))
        await turn()
        for name in sorted(cluster.bookies)[:down]:
            cluster.bookies[name].fail(DiskIOError("down"))
        client = cluster.client()
        if down == 1:
            assert (await client.open_ledger(handle.ledger_id)).last_add_confirmed == 4
            return
        # Whoever opens many, as a backup of a cluster does, has to be told which it is.
        with pytest.raises(UnknownEntryError, match=f"^ledger {handle.ledger_id}: "):
            await client.open_ledger(handle.ledger_id)
        for bookie in cluster.bookies.values():
            bookie.fail(None)
        assert (await client.open_ledger(handle.ledger_id)).last_add_confirmed == 4

    run_cluster(main)


@pytest.mark.parametrize("error", [DiskIOError("eio"), UnknownEntryError("limbo")])
def test_io_error_is_never_taken_for_the_end(error):
    """B4: the only bookie can not read: the ledger is not closed short."""

    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3))
        bookie = cluster.bookies["b0"]
        bookie.read_error = error
        client = cluster.client()
        with pytest.raises(UnknownEntryError, match=f"^ledger {handle.ledger_id}: entry 0: "):
            await client.open_ledger(handle.ledger_id)
        bookie.read_error = None
        assert (await client.open_ledger(handle.ledger_id)).last_add_confirmed == 2

    run_cluster(main, bookies=1)


def test_damaged_entry_is_never_taken_for_the_end():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3))
        cluster.bookies["b0"].corrupt(handle.ledger_id, 1)
        with pytest.raises(UnknownEntryError, match="CRC32C"):
            await cluster.client().open_ledger(handle.ledger_id)

    run_cluster(main, bookies=1)


@pytest.mark.parametrize("index", range(3))
def test_damaged_last_entry_is_taken_from_another_bookie(index):
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3), quorums=(3, 3, 2))
        await turn()
        cluster.bookies[handle.metadata.fragments[0].ensemble[index]].corrupt(handle.ledger_id, 2)
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert await reader.read_entries(0, 2) == payloads(0, 3)
        # Written back to all of them.
        for name in reader.metadata.fragments[0].ensemble:
            assert cluster.bookies[name].entry(handle.ledger_id, 2)[-7:] == payloads(2, 1)[0][-7:]

    run_cluster(main)


def test_wiped_bookie_does_not_shorten_the_ledger():
    """B3, B6: one of three lost everything and says so with certainty."""

    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        for i in range(4):
            await appends.append_and_wait(*payloads(i, 1))
        await turn()
        cluster.bookies["b1"].forget_ledger(handle.ledger_id)
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 3
        assert await reader.read_entries(0, 3) == payloads(0, 4)

    run_cluster(main)


def test_acknowledged_entry_that_no_bookie_has_is_damage():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        for i in range(3):
            await appends.append_and_wait(*payloads(i, 1))
        cluster.bookies["b0"].forget_entry(handle.ledger_id, 1)
        with pytest.raises(CorruptionError, match="entry 1"):
            await cluster.client().open_ledger(handle.ledger_id)

    run_cluster(main, bookies=1)


def test_late_add_after_recovery_is_refused_by_every_bookie():
    """B1: a bookie that was silent while the LAC was asked is fenced before it is read."""

    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 3))
        await turn()
        silent = cluster.bookies[handle.metadata.last_fragment.ensemble[2]]
        silent.fence_error = DiskIOError("silent")
        reader = await cluster.client().open_ledger(handle.ledger_id)
        silent.fence_error = None
        assert isinstance(await appends.append_and_wait(b"late"), LedgerFencedError)
        assert reader.last_add_confirmed == handle.last_add_confirmed == 2

    run_cluster(main)


class SlowNetwork(MemoryBookie):
    """Its writer's adds wait on their way to it until :meth:`deliver`; counts how often it is fenced."""

    def __init__(self):
        super().__init__()
        self.holds_adds = False
        self.fences = 0
        self.fences_failing = 0
        #: What it calls its last entry, if that is an older one, as BookKeeper's may.
        self.called_last = None
        self._under_way = []

    def add_entries(self, *arguments, **named):
        call = partial(super().add_entries, *arguments, **named)
        if self.holds_adds and not named["recovery"]:
            self._under_way.append(call)
        else:
            call()

    def fence(self, *arguments, **named):
        self.fences += 1
        self.fence_error = DiskIOError("away") if self.fences <= self.fences_failing else None
        super().fence(*arguments, **named)

    def read_lac(self, ledger_id, *, done):
        last = self.called_last
        if last is None:
            super().read_lac(ledger_id, done=done)
        else:
            done(LacResult(last, self.entry(ledger_id, last), None))

    def deliver(self):
        self.holds_adds = False
        for call in self._under_way:
            call()


def test_bookie_that_comes_back_is_fenced_before_its_absence_counts():
    """An add that is on its way to it would be acknowledged after recovery was certain that it never was (BK #2614)."""

    async def main(cluster: Cluster):
        cluster.bookies = {name: SlowNetwork() for name in cluster.bookies}
        cluster.pool = LocalBookiePool(cluster.bookies)
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 3))
        await turn()
        holder, back, other = (cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble)
        back.holds_adds = other.holds_adds = True
        appends.append(b"on its way")
        await turn()
        # Who has the entry can be fenced and not read; who is not fenced yet does not have it.
        holder.read_error, holder.called_last = DiskIOError("unreadable"), 2
        back.fences_failing = 1
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 2
        for bookie in (back, other):
            bookie.deliver()
        assert error_classes(await appends.has(2)) == [None, LedgerFencedError]
        assert handle.last_add_confirmed == 2

    run_cluster(main)


def test_bookie_that_can_not_be_fenced_is_not_waited_for():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3), quorums=(3, 3, 2))
        await turn()
        unreadable, unfenced, _ = (cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble)
        unreadable.read_error = DiskIOError("unreadable")
        unfenced.fence_error = DiskIOError("away")
        # Where it ends is for one of the two to say.
        with pytest.raises(UnknownEntryError):
            await cluster.client().open_ledger(handle.ledger_id)

    run_cluster(main)


def test_bookie_is_fenced_once_however_much_is_read():
    async def main(cluster: Cluster):
        cluster.bookies = {name: SlowNetwork() for name in cluster.bookies}
        cluster.pool = LocalBookiePool(cluster.bookies)
        handle = await filled(cluster, *payloads(0, 7), quorums=(3, 3, 2))
        await turn()
        await cluster.client(config=BookKeeperConfig(recovery_read_batch_size=1)).open_ledger(handle.ledger_id)
        assert [bookie.fences for bookie in cluster.bookies.values()] == [1, 1, 1]

    run_cluster(main)


class AskedBookie(MemoryBookie):
    """Notes what recovery asks of it."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def fence_and_read_lac(self, *arguments, **named):
        self.asked.append("fence and LAC")
        super().fence_and_read_lac(*arguments, **named)

    def read_entries(self, ledger_id, entry_ids, done, **named):
        self.asked.append(list(entry_ids))
        super().read_entries(ledger_id, entry_ids, done, **named)

    def add_entries(self, ledger_id, entry_ids, *arguments, recovery, **named):
        self.asked += [("written back", *entry_ids)] if recovery else []
        super().add_entries(ledger_id, entry_ids, *arguments, recovery=recovery, **named)


@pytest.mark.parametrize(("count", "asked"), [(0, [[0]]), (1, [[1], ("written back", 0)])])
@pytest.mark.parametrize("quorums", QUORUMS)
def test_each_bookie_is_asked_for_its_end_once_and_for_no_entry_that_one_gave_then(quorums, count, asked):
    """Behind it for one, which is not there: thousands of topics are taken over at once."""

    async def main(cluster: Cluster):
        cluster.bookies = {name: AskedBookie() for name in cluster.bookies}
        cluster.pool = LocalBookiePool(cluster.bookies)
        handle = await create(cluster.client(), quorums)
        if count:
            await Appends(handle).append_and_wait(*payloads(0, count))
        await turn()
        reader = await cluster.client().open_ledger(handle.ledger_id)
        ensemble = handle.metadata.fragments[0].ensemble
        distribution = handle._distribution
        for index, name in enumerate(ensemble):
            expected = [what for what in asked if distribution.holds(index, what[-1])]
            assert cluster.bookies[name].asked == ["fence and LAC", *expected], name
        assert reader.last_add_confirmed == count - 1

    run_cluster(main)


def test_entry_that_the_writer_stored_on_other_bookies_while_the_ledger_was_recovered_is_in_it():
    """The ones that recovery asked are certain that it is not there: it was acknowledged by others."""

    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 3))
        await turn()
        left, late, unfenced = (cluster.bookies[name] for name in handle.metadata.fragments[0].ensemble)
        # What the writer is told: one fails, one does not answer yet, and a new one comes in.
        left.add_error, late.holds_replies = DiskIOError("broken"), True
        unfenced.fence_error = DiskIOError("away")
        opening = asyncio.ensure_future(cluster.client().open_ledger(handle.ledger_id))
        await turn(20)
        assert not opening.done()
        assert await appends.append_and_wait(*payloads(3, 1)) is None
        unfenced.fence_error = None
        late.release()
        reader = await opening
        assert await reader.read_entries(0, 3) == payloads(0, 4)
        assert isinstance(await appends.append_and_wait(b"late"), LedgerFencedError)

    run_cluster(main, bookies=4)


def test_writer_that_closes_its_ledger_while_it_is_recovered_says_where_it_ends():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3), quorums=(3, 3, 2))
        await turn()
        for name in handle.metadata.fragments[0].ensemble:
            cluster.bookies[name].holds_replies = True
        opening = asyncio.ensure_future(cluster.client().open_ledger(handle.ledger_id))
        await turn(20)
        await handle.close()
        for bookie in cluster.bookies.values():
            bookie.release()
        assert (await opening).metadata == handle.metadata

    run_cluster(main)


def test_recovery_writes_the_metadata_once():
    """Where the ledger ends: thousands of topics are taken over at once, and each write is synced."""

    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3), quorums=(3, 3, 2))
        await turn()
        store = LedgerStore(cluster.stores[0])
        before = (await store.read(handle.ledger_id)).version
        await cluster.client().open_ledger(handle.ledger_id)
        assert (await store.read(handle.ledger_id)).version == before + 1

    run_cluster(main)


def test_ledger_that_is_replicated_anew_while_it_is_recovered_is_closed_over_its_new_bookies():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3), quorums=(2, 2, 1))
        await turn()
        kept, left = handle.metadata.last_fragment.ensemble
        [newcomer] = cluster.bookies.keys() - {kept, left}
        client = cluster.client()
        for name in (kept, left):
            cluster.bookies[name].holds_replies = True
        opening = asyncio.ensure_future(client.open_ledger(handle.ledger_id))
        await turn(20)
        entries = [cluster.bookies[kept].entry(handle.ledger_id, entry_id) for entry_id in range(3)]
        cluster.bookies[newcomer].add_entries(
            handle.ledger_id, range(3), entries, master_key=handle._master_key, recovery=True, done=lambda *_: None
        )
        fragments = (LedgerFragment(0, (kept, newcomer)),)
        await LedgerStore(cluster.stores[0]).update(handle.ledger_id, lambda m: m.with_fragments(fragments))
        for name in (kept, left):
            cluster.bookies[name].release()
        reader = await opening
        assert (reader.last_add_confirmed, reader.metadata.fragments) == (2, fragments)

    run_cluster(main)


def test_write_back_goes_to_another_bookie_when_one_refuses():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (2, 2, 2))
        await appends.append_and_wait(*payloads(0, 2))
        broken = handle.metadata.last_fragment.ensemble[1]
        cluster.bookies[broken].add_error = DiskIOError("read-only")
        cluster.pool.unavailable.add(broken)
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 1
        assert broken not in reader.metadata.last_fragment.ensemble
        assert await reader.read_entries(0, 1) == payloads(0, 2)

    run_cluster(main)


@pytest.mark.parametrize("seed", sampled("recovery", range(20), 7))
def test_concurrent_recoverers_agree_under_unknown_outcomes(seed):
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 3))
        appends.append(*payloads(3, 2))

        def faults():
            return MetadataFaults(unknown_before_percent=20, unknown_after_percent=20, delay_ms_max=5)

        readers = await asyncio.gather(*(cluster.client(faults=faults()).open_ledger(handle.ledger_id) for _ in "abc"))
        assert len({reader.last_add_confirmed for reader in readers}) == 1
        assert readers[0].metadata == readers[1].metadata == readers[2].metadata
        acknowledged = max(first + count for first, count, error in appends.done if error is None)
        assert readers[0].last_add_confirmed >= acknowledged - 1
        last = readers[0].last_add_confirmed
        assert await readers[0].read_entries(0, last) == payloads(0, last + 1)

    run_cluster(main, seed=seed)


# ---- without recovery


def test_reading_along_sees_what_later_headers_prove_and_disturbs_nobody():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        await appends.append_and_wait(*payloads(0, 2))
        client = cluster.client()
        early = await client.open_ledger(handle.ledger_id, recover=False)
        assert (early.last_add_confirmed, early.is_closed) == (-1, False)
        await appends.append_and_wait(*payloads(2, 1))
        reader = await client.open_ledger(handle.ledger_id, recover=False)
        assert (reader.last_add_confirmed, reader.length_bytes) == (1, 18)
        assert await reader.read_entries(0, 1) == payloads(0, 2)
        assert await appends.append_and_wait(b"still going") is None
        await handle.close()
        closed = await client.open_ledger(handle.ledger_id, recover=False)
        assert (closed.last_add_confirmed, closed.is_closed) == (3, True)

    run_cluster(main)


def test_last_add_confirmed_waits_for_enough_bookies():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (3, 3, 2))
        for i in range(3):
            await Appends(handle).append_and_wait(*payloads(i, 1))
        await turn()
        env = LedgerEnvironment(cluster.runtime, cluster.stores[0], cluster.pool, BookKeeperConfig())
        assert await read_last_add_confirmed(env, handle.ledger_id, handle.metadata) == (1, 18)
        for name in ("b0", "b1"):
            cluster.bookies[name].fail(DiskIOError("down"))
        with pytest.raises(UnknownEntryError):
            await read_last_add_confirmed(env, handle.ledger_id, handle.metadata)

    run_cluster(main)


@pytest.mark.parametrize("count", [1, 2])
def test_reading_along_sees_the_first_entries(count):
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        for i in range(count + 1):
            await appends.append_and_wait(*payloads(i, 1))
        reader = await cluster.client().open_ledger(handle.ledger_id, recover=False)
        assert (reader.last_add_confirmed, reader.length_bytes) == (count - 1, 9 * count)

    run_cluster(main)


def test_reading_along_knows_that_what_is_before_the_last_fragment_is_confirmed():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        await appends.append_and_wait(*payloads(0, 4))
        [first] = handle.metadata.last_fragment.ensemble
        cluster.bookies[first].add_error = DiskIOError("broken")
        await appends.append_and_wait(*payloads(4, 1))
        [second] = handle.metadata.last_fragment.ensemble
        cluster.bookies[second].forget_ledger(handle.ledger_id)
        reader = await cluster.client().open_ledger(handle.ledger_id, recover=False)
        assert (reader.last_add_confirmed, reader.length_bytes) == (3, 36)

    run_cluster(main)


def test_reader_without_recovery_can_not_close_the_writers_ledger():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        reader = await cluster.client().open_ledger(handle.ledger_id, recover=False)
        await reader.close()
        assert await Appends(handle).append_and_wait(b"x") is None
        await handle.close()

    run_cluster(main)


def test_missing_ledger_is_no_such_ledger():
    async def main(cluster: Cluster):
        for recover in (True, False):
            with pytest.raises(NoSuchLedgerError):
                await cluster.client().open_ledger(77, recover=recover)

    run_cluster(main)


@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize("index", [0, 1])
def test_acknowledged_entry_that_one_bookie_lost_is_taken_from_the_other_whoever_answers_first(index, recover):
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (2, 2, 2))
        for entry_id in range(5):
            assert await appends.append_and_wait(*payloads(entry_id, 1)) is None
        # The last one says that this one was acknowledged.
        cluster.bookies[handle.metadata.fragments[0].ensemble[index]].forget_entry(handle.ledger_id, 3)
        reader = await cluster.client().open_ledger(handle.ledger_id, recover=recover)
        assert reader.last_add_confirmed == (4 if recover else 3)
        assert await reader.read_entries(0, 3) == payloads(0, 4)

    run_cluster(main)


def test_acknowledged_entry_that_one_bookie_lost_and_the_other_can_not_tell_is_unknown():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (2, 2, 2))
        for entry_id in range(5):
            assert await appends.append_and_wait(*payloads(entry_id, 1)) is None
        first, second = handle.metadata.fragments[0].ensemble
        cluster.bookies[first].forget_entry(handle.ledger_id, 3)
        cluster.bookies[second].read_error = DiskIOError("no")
        with pytest.raises(UnknownEntryError):
            await cluster.client().open_ledger(handle.ledger_id)
        cluster.bookies[second].read_error = None
        assert (await cluster.client().open_ledger(handle.ledger_id)).last_add_confirmed == 4

    run_cluster(main)
