"""Requests under way: which of them stop reading, and until when."""

from __future__ import annotations

import pytest

from geminga.broker.connection import request_load, request_room
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.request_load import RequestLoad
from geminga.broker.connection.request_room import REQUESTS_FEW, RequestRoom


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_load, "REQUESTS_PENDING_MAX", 100)
    monkeypatch.setattr(request_room, "REQUESTS_UNDER_WAY_MAX", 150)


def load_of(room: RequestRoom) -> tuple[RequestLoad, ReadGate]:
    gate = ReadGate(lambda reasons: None)
    return RequestLoad(room, gate), gate


def test_too_many_of_one_connection_hold_it_until_half_are_done_and_those_that_rest_hold_nothing() -> None:
    load, gate = load_of(RequestRoom())
    for _ in range(100):
        load.begins()
    assert gate.reasons == PauseReason.NONE
    load.begins()
    assert gate.reasons == PauseReason.PENDING_REQUESTS
    for _ in range(50):
        load.rests()
    assert gate.reasons == PauseReason.PENDING_REQUESTS
    load.rests()
    assert gate.reasons == PauseReason.NONE
    for _ in range(51):
        load.goes_on()
    assert gate.reasons == PauseReason.PENDING_REQUESTS


def test_one_of_a_full_room_is_held_until_half_is_free_unless_it_is_closed() -> None:
    room = RequestRoom()
    loads = [load_of(room) for _ in range(4)]
    for load, _ in loads[:2]:
        for _ in range(75):
            load.begins()
    few, few_gate = loads[2]
    for _ in range(REQUESTS_FEW):
        few.begins()
    assert few_gate.reasons == PauseReason.NONE
    few.begins()
    assert few_gate.reasons == PauseReason.REQUEST_ROOM
    closed, closed_gate = loads[3]
    closed.closed()
    for _ in range(REQUESTS_FEW + 1):
        closed.begins()
    assert closed_gate.reasons == PauseReason.NONE
    assert list(room.held) == [few]
    while room.count > 75:
        loads[0][0].done()
    assert few_gate.reasons == PauseReason.NONE


def test_requests_of_a_connection_that_is_over_count_until_they_are_done() -> None:
    room = RequestRoom()
    load, _ = load_of(room)
    load.begins()
    load.end()
    assert room.count == 1
    load.done()
    assert (room.count, room.held) == (0, {})
