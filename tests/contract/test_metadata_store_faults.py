"""What metadata stores do when they are told to misbehave (``metadata.core.faults``), and how callers survive it."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata import SessionEvent, WriteFault, cas
from geminga.model.errors import SessionExpiredError, UnknownOutcomeError
from support.worlds.metadata_stores import (
    SOCKETS,
    Harness,
    Inbox,
    SocketCase,
    store_case,
)


@pytest.fixture(params=["memory", "memory-simulated", "sqlite", *SOCKETS])
def case(request, tmp_path):
    return store_case(request, tmp_path)


def test_calls_fail_while_there_is_no_session(case):
    if isinstance(case, SocketCase):
        pytest.skip("the next session begins with the next connection; test_sessions.py has the time without")

    async def main(h: Harness):
        events = Inbox()
        h.store.on_session_event(events)
        await h.store.put("/p", b"", expected_version=None)
        h.store.expire_session(outage_ms=5)
        with pytest.raises(SessionExpiredError):
            await h.store.get("/p")
        with pytest.raises(SessionExpiredError):
            await h.store.put("/p", b"", expected_version=None)
        assert await events.has(2) == [SessionEvent.EXPIRED, SessionEvent.RECONNECTED]
        assert await h.store.exists("/p")

    case.run(main)


def test_unknown_outcome_before_the_write_leaves_it_undone(case):
    async def main(h: Harness):
        h.faults.next_writes.append(WriteFault.UNKNOWN_BEFORE)
        with pytest.raises(UnknownOutcomeError):
            await h.store.put("/a", b"", expected_version=None)
        assert not await h.store.exists("/a")
        await h.store.put("/a", b"", expected_version=None)
        h.faults.next_writes.append(WriteFault.UNKNOWN_BEFORE)
        with pytest.raises(UnknownOutcomeError):
            await h.store.delete("/a")
        assert await h.store.exists("/a")

    case.run(main)


def test_unknown_outcome_after_the_write_leaves_it_done(case):
    async def main(h: Harness):
        h.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        with pytest.raises(UnknownOutcomeError):
            await h.store.put("/a", b"x", expected_version=None)
        node = await h.store.get("/a")
        assert node is not None
        assert node.value == b"x"
        h.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        with pytest.raises(UnknownOutcomeError):
            await h.store.delete("/a")
        assert not await h.store.exists("/a")

    case.run(main)


def test_percentages_of_unknown_outcomes_are_met(case):
    async def main(h: Harness):
        h.faults.unknown_before_percent = 30
        h.faults.unknown_after_percent = 30
        writes = [h.store.put(f"/n/{i}", b"", expected_version=None) for i in range(200)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        unknown = {i for i, result in enumerate(results) if isinstance(result, UnknownOutcomeError)}
        present = {int(name) for name in await h.store.children("/n")}
        assert set(range(200)) - unknown <= present
        assert 30 < len(unknown & present) < 90
        assert 30 < len(unknown - present) < 90

    case.run(main)


def test_watch_told_to_be_lost_never_comes(case):
    async def main(h: Harness):
        lost, kept = Inbox(), Inbox()
        h.store.watch_node("/a", lost)
        h.faults.watch_lost_percent = 100
        await h.store.put("/a", b"", expected_version=None)
        h.faults.watch_lost_percent = 0
        h.store.watch_node("/b", kept)
        await h.store.put("/b", b"", expected_version=None)
        await kept.has(1)
        assert lost.items == []

    case.run(main)


def test_watch_told_to_come_twice_does(case):
    async def main(h: Harness):
        inbox = Inbox()
        h.store.watch_node("/a", inbox)
        h.faults.watch_twice_percent = 100
        await h.store.put("/a", b"", expected_version=None)
        await inbox.has(2)
        assert inbox.kinds_and_paths() == [("created", "/a")] * 2

    case.run(main)


def test_watch_told_to_be_late_comes_after_a_later_one(case):
    async def main(h: Harness):
        inbox = Inbox()
        h.store.watch_node("/a", inbox)
        h.faults.watch_late_percent = 100
        h.faults.watch_late_ms_max = 200
        await h.store.put("/a", b"", expected_version=None)
        h.faults.watch_late_percent = 0
        await h.store.put("/a", b"", expected_version=None)
        await inbox.has(2)
        assert sorted(inbox.kinds_and_paths()) == [("created", "/a"), ("modified", "/a")]

    case.run(main)


def test_slow_store_still_keeps_its_promises(case):
    async def main(h: Harness):
        h.faults.delay_ms_max = 3
        writes = [h.store.put("/a", str(i).encode(), expected_version=None) for i in range(10)]
        versions = [result.stat.version for result in await asyncio.gather(*writes)]
        assert sorted(versions) == list(range(10))

    case.run(main)


# ---- the loop every caller uses


def test_cas_update_loses_no_increment_under_races_and_unknown_outcomes(case):
    async def main(h: Harness):
        h.faults.unknown_before_percent = 20
        h.faults.unknown_after_percent = 20

        async def add(token: int) -> None:
            mine = str(token).encode()

            def change(value: bytes | None) -> bytes | None:
                seen = value.split() if value else []
                return None if mine in seen else b" ".join([*seen, mine])

            await cas.update(h.store, "/counter", change, attempts_max=1000)

        await asyncio.gather(*(add(token) for token in range(12)))
        node = await h.store.get("/counter")
        assert node is not None
        assert sorted(map(int, node.value.split())) == list(range(12))

    case.run(main)


def test_cas_remove_is_done_under_unknown_outcomes(case):
    async def main(h: Harness):
        for fault in (WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER, WriteFault.NONE):
            await h.store.put("/a", b"", expected_version=None)
            h.faults.next_writes.append(fault)
            assert await cas.remove(h.store, "/a")
            assert not await h.store.exists("/a")
        assert not await cas.remove(h.store, "/a")

    case.run(main)
