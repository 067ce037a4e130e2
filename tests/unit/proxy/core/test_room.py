"""The bound on what nobody takes, over all connections."""

from __future__ import annotations

from geminga.proxy.core.room import UntakenRoom


def test_who_is_over_its_mark_longest_is_cut_off_where_all_are_too_much() -> None:
    room, gone = UntakenRoom(100), []
    for name in ("a", "b", "c"):
        room.hold(name, 30, lambda name=name: gone.append(name))
    room.free("a")
    room.hold("a", 30, lambda: gone.append("a"))
    assert (gone, room.size_bytes) == ([], 90)
    room.hold("c", 60, lambda: gone.append("c"))
    assert (gone, room.size_bytes) == (["b"], 90)
    room.hold("d", 90, lambda: gone.append("d"))
    assert (gone, room.size_bytes) == (["b", "c", "a"], 90)


def test_one_alone_stays_and_what_is_freed_twice_counts_once() -> None:
    room, gone = UntakenRoom(100), []
    room.hold("a", 500, lambda: gone.append("a"))
    assert gone == []
    room.free("a")
    room.free("a")
    room.free("b")
    assert room.size_bytes == 0


def test_one_alone_that_is_sent_more_and_more_is_cut_off() -> None:
    room, gone = UntakenRoom(100), []
    for size_bytes in (60, 90, 101):
        room.hold("a", size_bytes, lambda: gone.append("a"))
    assert (gone, room.size_bytes) == (["a"], 0)
