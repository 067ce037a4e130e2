"""What a power loss leaves of files and directories: everything synced, any of the rest, nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.sim.disk_media import PAGE_BYTES, SECTOR_BYTES, Directory, Inode, Resize, Write, linked, lose_power
from geminga.sim.rng import stream

WRITES = st.tuples(st.integers(0, 3 * PAGE_BYTES), st.binary(min_size=1, max_size=2 * PAGE_BYTES)).map(
    lambda pair: Write(*pair)
)
CHANGES = st.lists(st.one_of(WRITES, st.integers(0, 5 * PAGE_BYTES).map(Resize), st.just("sync")), max_size=8)


def images(inode, count=60):
    return [bytes(inode.after_power_loss(stream(0, seed))) for seed in range(count)]


def test_synced_bytes_are_kept_whole():
    inode = Inode()
    inode.change(Write(0, b"a" * 10_000))
    inode.sync()
    assert set(images(inode)) == {b"a" * 10_000}


def test_unsynced_append_is_sometimes_lost_sometimes_kept_sometimes_torn():
    inode = Inode()
    inode.change(Write(0, b"a" * PAGE_BYTES))
    inode.sync()
    inode.change(Write(PAGE_BYTES, b"b" * 2 * PAGE_BYTES))
    found = set(images(inode, 300))
    assert b"a" * PAGE_BYTES in found
    assert b"a" * PAGE_BYTES + b"b" * 2 * PAGE_BYTES in found
    assert all(image.startswith(b"a" * PAGE_BYTES) for image in found)
    tails = {image[PAGE_BYTES:] for image in found}
    assert any(0 < tail.count(b"b") < 2 * PAGE_BYTES for tail in tails)
    # Torn only between sectors.
    for tail in tails:
        for start in range(0, len(tail), SECTOR_BYTES):
            assert len(set(tail[start : start + SECTOR_BYTES])) <= 1
    # The size may be new while the bytes are not.
    assert bytes(2 * PAGE_BYTES) in tails


def test_later_page_may_be_kept_while_an_earlier_one_is_lost():
    inode = Inode()
    for page in range(4):
        inode.change(Write(page * PAGE_BYTES, b"x" * PAGE_BYTES))
    assert any(
        image[:PAGE_BYTES] == bytes(PAGE_BYTES) and b"x" * PAGE_BYTES in image[PAGE_BYTES:]
        for image in images(inode, 300)
    )


def test_page_rewritten_before_a_sync_may_be_found_in_an_older_state():
    inode = Inode()
    inode.change(Write(0, b"1" * 100))
    inode.change(Write(100, b"2" * 100))
    inode.change(Write(200, b"3" * 100))
    found = {image.rstrip(b"\0") for image in images(inode, 400)}
    assert {b"", b"1" * 100, b"1" * 100 + b"2" * 100, b"1" * 100 + b"2" * 100 + b"3" * 100} <= found


def test_failed_sync_loses_bytes_that_no_later_sync_brings_back():
    lost = 0
    for seed in range(50):
        inode = Inode()
        inode.change(Write(0, b"a" * 100))
        inode.sync_failed(stream(seed))
        assert inode.written == b"a" * 100
        inode.sync()
        inode.change(Write(100, b"b" * 100))
        inode.sync()
        assert inode.synced[100:] == b"b" * 100
        lost += inode.synced[:100] != b"a" * 100
    assert 5 < lost < 50


def test_truncated_and_extended_file_shows_zeros():
    inode = Inode()
    inode.change(Write(0, b"a" * 1000))
    inode.change(Resize(10))
    inode.change(Resize(20))
    assert inode.written == b"a" * 10 + bytes(10)
    inode.sync()
    assert inode.synced == inode.written


@given(CHANGES, st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_each_sector_is_as_after_some_of_the_changes_to_it(changes, seed):
    """Oracle: for every sector, all states it ever had since the last sync."""
    inode = Inode()
    states = [b""]
    for change in changes:
        if change == "sync":
            inode.sync()
            assert inode.synced == inode.written
            states = [bytes(inode.written)]
        else:
            inode.change(change)
            states.append(bytes(inode.written))
    image = bytes(inode.after_power_loss(stream(seed)))
    assert len(image) in {len(state) for state in states}
    for start in range(0, len(image), SECTOR_BYTES):
        sector = image[start : start + SECTOR_BYTES]
        size = len(sector)
        allowed = {state[start : start + size].ljust(size, b"\0") for state in states}
        assert sector in allowed


def test_unsynced_directory_entries_may_be_old_or_new_each():
    outcomes = set()
    for seed in range(300):
        root, old, new = Directory(), Inode(), Inode()
        old.change(Write(0, b"old"))
        new.change(Write(0, b"new"))
        old.sync()
        new.sync()
        root.change({"target": old})
        root.sync()
        root.change({"temporary": new})
        root.change({"temporary": None, "target": new})
        root.change({"other": Inode()})
        lose_power(root, stream(seed))
        assert bytes(root.entries["target"].written) in (b"old", b"new")
        assert root.entries == root.synced
        outcomes.add((bytes(root.entries["target"].written), "temporary" in root.entries, "other" in root.entries))
    # A rename is atomic: never the new target and its temporary name too.
    assert outcomes == {
        (b"old", False, False),
        (b"old", True, False),
        (b"old", False, True),
        (b"old", True, True),
        (b"new", False, False),
        (b"new", False, True),
    }


def test_synced_directory_entries_are_kept_and_synced_removals_stay():
    for seed in range(50):
        root, kept = Directory(), Inode()
        root.change({"kept": kept, "gone": Inode()})
        root.change({"gone": None})
        root.sync()
        lose_power(root, stream(seed))
        assert list(root.entries) == ["kept"]


def test_unsynced_unlink_may_bring_the_file_back_whole():
    found = set()
    for seed in range(50):
        root, inode = Directory(), Inode()
        inode.change(Write(0, b"data"))
        inode.sync()
        root.change({"f": inode})
        root.sync()
        root.change({"f": None})
        lose_power(root, stream(seed))
        found.add(bytes(root.entries["f"].written) if "f" in root.entries else None)
    assert found == {b"data", None}


def test_lost_directory_takes_its_files_along():
    found = set()
    for seed in range(50):
        root, sub = Directory(), Directory()
        sub.change({"f": Inode()})
        sub.sync()
        root.change({"sub": sub})
        lose_power(root, stream(seed))
        found.add("sub" in root.entries)
    assert found == {True, False}


def test_file_with_two_names_is_one():
    root, sub, inode, other = Directory(), Directory(), Inode(), Inode()
    root.change({"sub": sub, "a": inode})
    sub.change({"b": inode, "c": other})
    assert linked(root) == {inode, other}
