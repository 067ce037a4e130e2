"""Nodes owned by one writer: versions, unknown outcomes, names."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.shared.metadata_io import MetadataNode, claim, cursor_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import InvariantError, LedgerFencedError, MetadataError, UnknownOutcomeError

PATH = "/managed-ledgers/x"
BEFORE, AFTER = WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER


@pytest.mark.parametrize("faults", [[], [BEFORE], [AFTER], [BEFORE, AFTER], [BEFORE, BEFORE, BEFORE]])
def test_put_with_unknown_outcomes_writes_once(in_world, faults):
    async def scenario(w):
        node = MetadataNode()
        for number in range(3):
            w.faults.next_writes.extend(faults)
            await node.put(w.store, PATH, b"%d" % number)
            found = await w.store.get(PATH)
            assert (found.value, found.stat.version) == (b"%d" % number, number)
            assert node.version == number

    in_world(scenario)


def test_put_of_another_owner_fences(in_world):
    async def scenario(w):
        ours, theirs = MetadataNode(), MetadataNode()
        await ours.put(w.store, PATH, b"1")
        theirs.version = ours.version
        await theirs.put(w.store, PATH, b"2")
        with pytest.raises(LedgerFencedError):
            await ours.put(w.store, PATH, b"3")
        w.faults.next_writes.append(BEFORE)
        with pytest.raises(LedgerFencedError):
            await ours.put(w.store, PATH, b"3")

    in_world(scenario)


def test_put_in_doubt_is_settled_by_the_next(in_world):
    async def scenario(w):
        node = MetadataNode()
        w.faults.next_writes.extend([BEFORE] * 7 + [AFTER])
        await node.put(w.store, PATH, b"1")
        w.faults.next_writes.extend([BEFORE] * 8)
        with pytest.raises(UnknownOutcomeError):
            await node.put(w.store, PATH, b"2")
        await node.put(w.store, PATH, b"3")
        assert (await w.store.get(PATH)).value == b"3"

    in_world(scenario)


def test_put_is_in_doubt_until_the_store_can_be_asked(in_world):
    async def scenario(w):
        class Deaf:
            async def get(self, path):
                raise MetadataError("not now")

            async def put(self, path, value, *, expected_version):
                await w.store.put(path, value, expected_version=expected_version)
                raise UnknownOutcomeError("no answer")

        node = MetadataNode()
        assert not node.is_in_doubt
        with pytest.raises(MetadataError):
            await node.put(Deaf(), PATH, b"1")
        assert node.is_in_doubt
        await node.put(w.store, PATH, b"2")
        assert not node.is_in_doubt
        assert (await w.store.get(PATH)).value == b"2"

    in_world(scenario)


@pytest.mark.parametrize("steps", range(5))
def test_put_of_which_somebody_was_called_off_is_settled_by_the_next(in_world, steps):
    async def scenario(w):
        node = MetadataNode()
        await node.put(w.store, PATH, b"1")
        w.faults.delay_ms_max = 20
        cut = asyncio.ensure_future(node.put(w.store, PATH, b"2"))
        await w.world.sleep(steps * 0.01)
        cut.cancel()
        await asyncio.wait([cut])
        await node.put(w.store, PATH, b"3")
        await node.put(w.store, PATH, b"4")
        assert ((await w.store.get(PATH)).value, node.is_in_doubt) == (b"4", False)

    in_world(scenario)


class LateStore:
    """The first write of ``b"2"`` gets no answer, and comes to be behind the next read."""

    def __init__(self, store, behind=None):
        """``behind``: awaited next."""
        self._store = store
        self._behind = behind
        self._late = None
        self._is_first = True

    async def get(self, path):
        found = await self._store.get(path)
        version, self._late = self._late, None
        if version is not None:
            await self._store.put(path, b"2", expected_version=version)
            if self._behind is not None:
                await self._behind()
        return found

    async def put(self, path, value, *, expected_version):
        if value == b"2" and self._is_first:
            self._is_first, self._late = False, expected_version
            raise UnknownOutcomeError("no answer")
        return await self._store.put(path, value, expected_version=expected_version)

    async def delete(self, path, *, expected_version):
        await self._store.delete(path, expected_version=expected_version)


class CuttingStore(LateStore):
    """And who asked for that write is called off before."""

    async def put(self, path, value, *, expected_version):
        try:
            return await super().put(path, value, expected_version=expected_version)
        except UnknownOutcomeError:
            raise asyncio.CancelledError from None


def test_put_that_comes_to_be_after_it_was_looked_for_is_our_own(in_world):
    async def scenario(w):
        node = MetadataNode()
        await node.put(w.store, PATH, b"1")
        await node.put(LateStore(w.store), PATH, b"2")
        assert ((await w.store.get(PATH)).value, node.is_in_doubt) == (b"2", False)
        await node.put(w.store, PATH, b"3")

    in_world(scenario)


@pytest.mark.parametrize("ends", ["put", "delete", "require"])
def test_put_that_was_called_off_and_comes_to_be_after_it_was_looked_for_is_our_own(in_world, ends):
    async def scenario(w):
        store, node = CuttingStore(w.store), MetadataNode()
        await node.put(store, PATH, b"1")
        with pytest.raises(asyncio.CancelledError):
            await node.put(store, PATH, b"2")
        assert node.is_in_doubt
        if ends == "put":
            await node.put(store, PATH, b"3")
            assert (await w.store.get(PATH)).value == b"3"
        elif ends == "delete":
            await node.delete(store, PATH)
            assert await w.store.get(PATH) is None
        else:
            for version in (0, 1):
                await node.require_ours(store, PATH)
                assert node.version == version

    in_world(scenario)


def test_put_that_may_be_below_what_another_owner_has_stays_in_doubt(in_world):
    async def scenario(w):
        async def take_over():
            await claim(w.store, PATH)

        node = MetadataNode()
        await node.put(w.store, PATH, b"1")
        with pytest.raises(LedgerFencedError):
            await node.put(LateStore(w.store, take_over), PATH, b"2")
        # What the value names is named by what the other one has.
        assert ((await w.store.get(PATH)).value, node.is_in_doubt) == (b"2", True)

    in_world(scenario)


def test_deleted_node_does_not_come_back(in_world):
    async def scenario(w):
        node = MetadataNode()
        await node.put(w.store, PATH, b"1")
        w.faults.next_writes.extend([BEFORE, AFTER])
        await node.delete(w.store, PATH)
        await node.delete(w.store, PATH)
        with pytest.raises(LedgerFencedError):
            await node.put(w.store, PATH, b"2")
        assert not await w.store.exists(PATH)

    in_world(scenario)


@pytest.mark.parametrize("faults", [[], [BEFORE], [AFTER]])
def test_delete_of_what_another_owner_changed_is_fenced_and_it_stays(in_world, faults):
    async def scenario(w):
        ours, theirs = MetadataNode(), MetadataNode()
        await ours.put(w.store, PATH, b"1")
        theirs.version = ours.version
        await theirs.put(w.store, PATH, b"2")
        w.faults.next_writes.extend(faults)
        with pytest.raises(LedgerFencedError):
            await ours.delete(w.store, PATH)
        assert (await w.store.get(PATH)).value == b"2"
        w.faults.next_writes.clear()
        await theirs.delete(w.store, PATH)
        assert not await w.store.exists(PATH)
        await ours.delete(w.store, PATH)

    in_world(scenario)


def test_delete_between_our_reading_and_deleting_is_fenced(in_world):
    """Another owner writes after the node was read and before it goes."""

    async def scenario(w):
        node = MetadataNode()
        await node.put(w.store, PATH, b"1")

        class Overtaken:
            get = staticmethod(w.store.get)

            async def delete(self, path, *, expected_version=None):
                await w.store.put(path, b"2", expected_version=None)
                await w.store.delete(path, expected_version=expected_version)

        with pytest.raises(LedgerFencedError):
            await node.delete(Overtaken(), PATH)
        assert (await w.store.get(PATH)).value == b"2"

    in_world(scenario)


@pytest.mark.parametrize("happened", [True, False])
def test_delete_settles_a_write_in_doubt_first(in_world, happened):
    async def scenario(w):
        node = MetadataNode()
        await node.put(w.store, PATH, b"1")

        class Deaf:
            async def get(self, path):
                raise MetadataError("not now")

            put = staticmethod(w.store.put)

        w.faults.next_writes.append(AFTER if happened else BEFORE)
        with pytest.raises(MetadataError):
            await node.put(Deaf(), PATH, b"2")
        assert node.is_in_doubt
        await node.delete(w.store, PATH)
        assert not await w.store.exists(PATH)

    in_world(scenario)


def test_cursor_names_are_path_elements():
    assert cursor_path("t/n/persistent/x", "a%2Fb") == "/managed-ledgers/t/n/persistent/x/a%2Fb"
    for name in ("a/b", ""):
        with pytest.raises(InvariantError):
            cursor_path("t/n/persistent/x", name)
