"""The read-modify-write loop: lost races, unknown outcomes, giving up."""

from __future__ import annotations

import pytest

from geminga.metadata import WriteFault, cas
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import BadVersionError, UnknownOutcomeError
from support.worlds.metadata_stores import MemoryCase
from support.worlds.policy_levels import seconds


def run(main):
    MemoryCase(simulated=True).run(main)


def append(text):
    return lambda value: (value or b"") + text


def test_update_creates_then_changes():
    async def main(h):
        assert await cas.update(h.store, "/a", append(b"1")) == (b"1", 0)
        assert await cas.update(h.store, "/a", append(b"2")) == (b"12", 1)

    run(main)


def test_update_that_changes_nothing_returns_what_is_there():
    async def main(h):
        assert await cas.update(h.store, "/a", lambda value: None) is None
        await h.store.put("/a", b"x", expected_version=None)
        assert await cas.update(h.store, "/a", lambda value: None) == (b"x", 0)

    run(main)


def test_known_value_saves_the_read_and_a_stale_one_is_noticed():
    async def main(h):
        first = await cas.update(h.store, "/a", append(b"1"))
        second = await cas.update(h.store, "/a", append(b"2"), known=first)
        assert second == (b"12", 1)
        assert await cas.update(h.store, "/a", append(b"3"), known=first) == (b"123", 2)

    run(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_unknown_outcome_is_settled_by_reading(fault):
    async def main(h):
        await h.store.put("/a", b"1", expected_version=None)
        h.store.faults.next_writes.append(fault)
        assert await cas.update(h.store, "/a", append(b"2")) == (b"12", 1)

    run(main)


def test_update_gives_up_with_the_last_error():
    async def main(h):
        h.store.faults.unknown_before_percent = 100
        with pytest.raises(UnknownOutcomeError):
            await cas.update(h.store, "/a", append(b"1"), attempts_max=3)
        h.store.faults.unknown_before_percent = 0
        await h.store.put("/a", b"x", expected_version=None)
        with pytest.raises(BadVersionError):
            await cas.update(h.store, "/a", append(b"1"), known=cas.CasResult(b"old", 7), attempts_max=1)

    run(main)


def test_put_if_absent_tells_whose_value_is_there():
    async def main(h):
        assert await cas.put_if_absent(h.store, "/a", b"mine")
        assert await cas.put_if_absent(h.store, "/a", b"mine")
        assert not await cas.put_if_absent(h.store, "/a", b"other")

    run(main)


def test_remove_of_another_version_is_refused():
    async def main(h):
        await h.store.put("/a", b"", expected_version=None)
        with pytest.raises(BadVersionError):
            await cas.remove(h.store, "/a", expected_version=4)
        h.store.faults.unknown_before_percent = 100
        with pytest.raises(UnknownOutcomeError):
            await cas.remove(h.store, "/a", attempts_max=2)

    run(main)


BEFORE, AFTER = WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER


@pytest.mark.parametrize("faults", [[], [BEFORE], [AFTER], [BEFORE, BEFORE, AFTER]])
def test_remove_read_deletes_what_was_read_and_nothing_newer(faults):
    async def main(h):
        await h.store.put("/a", b"1", expected_version=None)
        read = await h.store.get("/a")
        await h.store.put("/a", b"2", expected_version=None)
        h.store.faults.next_writes.extend(faults[:1] if faults == [BEFORE] else ())
        with pytest.raises(BadVersionError):
            await cas.remove_read(h.store, "/a", read)
        read = await h.store.get("/a")
        h.store.faults.next_writes.extend(faults)
        await cas.remove_read(h.store, "/a", read)
        assert not await h.store.exists("/a")
        await cas.remove_read(h.store, "/a", read)

    run(main)


@pytest.mark.parametrize("wait_s", [0.0, 0.002])
def test_remove_read_without_an_answer_leaves_what_another_made_at_the_same_version(wait_s):
    """Ours went, unanswered; another client made the node anew, at the version that ours had."""

    async def main(h):
        await h.store.put("/a", b"ours", expected_version=None)
        read = await h.store.get("/a")

        class Unanswered:
            async def delete(self, path, *, expected_version=None):
                await h.store.delete(path, expected_version=expected_version)
                await seconds(wait_s)
                await h.store.put(path, b"theirs", expected_version=MUST_NOT_EXIST)
                raise UnknownOutcomeError("no answer")

            get = staticmethod(h.store.get)

        await cas.remove_read(Unanswered(), "/a", read)
        found = await h.store.get("/a")
        assert (found.value, found.stat.version) == (b"theirs", read.stat.version)

    run(main)


def test_remove_read_is_given_up_after_its_attempts():
    async def main(h):
        await h.store.put("/a", b"1", expected_version=None)
        read = await h.store.get("/a")
        h.store.faults.unknown_before_percent = 100
        with pytest.raises(UnknownOutcomeError):
            await cas.remove_read(h.store, "/a", read, attempts_max=3)
        assert await h.store.exists("/a")

    run(main)
