"""Bytes over all sockets: who waits for them, goes on, and is cut off."""

from __future__ import annotations

from geminga.broker.websocket.room import STUCK_S, PublishRoom, ReceiverRoom


class Waiting:
    def __init__(self, *, has_own_room: bool) -> None:
        self.has_own_room = has_own_room
        self.went_on = 0
        self.is_cut_off = False

    def may_go_on(self) -> bool:
        return self.has_own_room

    def go_on(self) -> None:
        self.went_on += 1

    def cut_off(self) -> None:
        self.is_cut_off = True


def test_room_lets_those_go_on_who_have_room_of_their_own() -> None:
    room = PublishRoom(100)
    one, other, gone = Waiting(has_own_room=True), Waiting(has_own_room=False), Waiting(has_own_room=True)
    for waiting, size_bytes in ((one, 60), (other, 20), (gone, 20)):
        room.take(waiting, size_bytes, 0.0)
    assert room.is_full
    for waiting in (one, other, gone):
        room.waits(waiting)
    room.leaves(gone)
    for number in (1, 2):
        room.take(one, 0, 0.0)
        room.give_back(one, 49 if number == 1 else 1, 0.0)
        assert one.went_on == number - 1
    assert (one.went_on, other.went_on, gone.went_on) == (1, 0, 0)
    other.has_own_room = True
    room.give_back(gone, 20, 0.0)
    assert (one.went_on, other.went_on) == (1, 1)
    assert room.waiting_count == 0
    room.give_back(one, 10, 0.0)
    room.give_back(other, 20, 0.0)
    assert room.held_bytes == 0


def test_room_cuts_off_who_holds_most_without_an_answer_for_so_long_and_others_wait_for_it() -> None:
    room = PublishRoom(100)
    most, second, moving, innocent = (Waiting(has_own_room=True) for _ in range(4))
    for waiting, size_bytes in ((most, 40), (second, 30), (moving, 50)):
        room.take(waiting, size_bytes, 0.0)
    room.look(STUCK_S)
    assert not most.is_cut_off, "nobody waits for its room"
    room.waits(innocent)
    room.look(STUCK_S - 1)
    assert not most.is_cut_off
    room.take(moving, 0, 0.0)
    room.give_back(moving, 10, STUCK_S - 1)
    room.look(STUCK_S)
    assert [one.is_cut_off for one in (most, second, moving)] == [True, False, False]
    # It ends by itself, and what it still holds is as good as free: that of another is not needed before.
    room.look(STUCK_S)
    assert [one.is_cut_off for one in (most, second, moving)] == [True, True, False]
    room.look(STUCK_S + 1)
    assert not moving.is_cut_off
    room.give_back(most, 40, STUCK_S + 1)
    assert innocent.went_on == 0
    room.give_back(second, 30, STUCK_S + 1)
    assert innocent.went_on == 1
    assert room.cut_off_count == 2


class Receiver:
    def __init__(self, *, may_send: bool = False, keeps_more: bool = False) -> None:
        self.may_send = may_send
        self.keeps_more = keeps_more
        self.was_cut_off = False

    def cut_off(self) -> None:
        self.was_cut_off = True


def test_inbox_lets_those_be_whose_peers_take_messages() -> None:
    room = ReceiverRoom(100)
    small, large, quick = Receiver(), Receiver(), Receiver(may_send=True)
    room.holds(quick, 80)
    room.holds(small, 5)
    room.holds(large, 10)
    assert room.held_bytes == 95
    room.holds(large, 16)
    assert (small.was_cut_off, large.was_cut_off, quick.was_cut_off) == (False, True, False)
    assert room.held_bytes == 85
    room.holds(small, 0)
    room.holds(quick, 200)
    assert (small.was_cut_off, quick.was_cut_off) == (False, False)
    room.leaves(quick)
    room.leaves(quick)
    assert (room.held_bytes, room.cut_off_count) == (0, 1)


def test_inbox_has_no_room_for_pieces_whose_others_never_come() -> None:
    room = ReceiverRoom(100)
    quick, most, less = Receiver(may_send=True), *(Receiver(may_send=True, keeps_more=True) for _ in range(2))
    room.holds(quick, 60)
    room.holds(less, 10)
    room.holds(most, 31)
    assert (quick.was_cut_off, most.was_cut_off, less.was_cut_off) == (False, True, False)
