"""Nodes owned by one writer: versions, unknown outcomes, names."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.shared.metadata_io import MetadataNode, cursor_path
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
