"""What becomes of a change, here or in another cluster."""

from __future__ import annotations

import pytest

from geminga.broker.synchronization.core.deciding import (
    ABSENT,
    AHEAD_MS_MAX,
    UNSEEN_MS,
    Announcement,
    Objections,
    Outcome,
    Stored,
    ThisCluster,
    adopted,
    change_here,
    decide,
)
from geminga.broker.synchronization.core.events import SyncEvent
from geminga.broker.synchronization.core.records import NOTHING, Before, PathRecord
from geminga.broker.synchronization.core.stamps import Stamp

PATH = "/admin/policies/t/n"
HERE = ThisCluster("west", now_ms=1_000_000, joined_ms=500_000)
NO = Objections()
WEST = PathRecord(Stamp(900_000, "west"), "a", Stamp(800_000, "east"))
EAST = PathRecord(Stamp(900_000, "east"), "a")
A = Stored("a", 3, 100, 900_000)
B = Stored("b", 4, 100, 950_000)


def event(
    time_ms: int, cluster: str = "east", *, replaces: Stamp | None = None, tells: bool = True, **more
) -> SyncEvent:
    value = more.pop("value", b"{}")
    return SyncEvent(PATH, value, Stamp(time_ms, cluster), replaces=replaces, tells_replaced=tells, **more)


def test_what_is_as_recorded_is_no_change() -> None:
    assert change_here(WEST, A, HERE) is None
    assert change_here(None, ABSENT, HERE) is None
    assert change_here(PathRecord(Stamp(1, "east"), NOTHING), ABSENT, HERE) is None


def test_what_was_there_before_is_told_only_for_where_there_is_nothing() -> None:
    before = change_here(None, Stored("a", 0, 1, 500_000), HERE)
    since = change_here(None, Stored("a", 0, 1, 500_001), HERE)
    assert before == Announcement(PathRecord(Stamp(500_000, "west"), "a", is_untold=True, is_first=True))
    assert since == Announcement(PathRecord(Stamp(500_001, "west"), "a", is_untold=True))
    assert (before.record.is_first, since.record.is_first) == (True, False)


def test_change_has_the_time_of_the_node_and_is_later_than_what_it_replaces() -> None:
    found = change_here(EAST, B, HERE)
    assert found == Announcement(PathRecord(Stamp(950_000, "west"), "b", EAST.stamp, is_untold=True))
    assert found.replaces == EAST.stamp
    # A clock behind that of the other cluster, or a store's ahead of this broker's.
    behind = PathRecord(Stamp(999_999, "east"), "a")
    assert change_here(behind, B, HERE).stamp == Stamp(1_000_000, "west")
    assert change_here(EAST, B._replace(modified_ms=2_000_000), HERE).stamp == Stamp(1_000_000, "west")
    assert change_here(EAST, ABSENT, HERE).stamp == Stamp(1_000_000, "west")


def test_stamp_of_a_change_is_that_of_no_other_value_though_nobody_knows_whether_it_was_told() -> None:
    untold = WEST._replace(is_untold=True)
    assert change_here(untold, A, HERE) == Announcement(untold)
    assert Announcement(untold).replaces == WEST.replaced
    later = change_here(untold, Stored("b", 4, 100, 900_000), HERE)
    assert isinstance(later, Announcement)
    assert later.stamp == Stamp(900_001, "west")
    # Told after all, and seen.
    assert decide(untold, A, event(950_000, replaces=WEST.stamp), "c", HERE, NO).undone is None
    assert decide(untold, A, event(950_000), "c", HERE, NO).undone == WEST.stamp


def test_change_that_is_being_made_waits_for_its_event_unless_somebody_changed_the_node() -> None:
    making = PathRecord(Stamp(960_000, "east"), "c", before=Before("b", 4, 100))
    assert change_here(making, B, HERE) is None
    assert change_here(making, Stored("c", 5, 100, 970_000), HERE) == making.settled()
    # Set back to what it was by somebody who saw it made.
    again = change_here(making, B._replace(version=6), HERE)
    assert isinstance(again, Announcement)
    assert (again.stamp, again.replaces) == (Stamp(960_001, "west"), None)
    # Made, which nobody noted: its event comes no more, so that what is set back now is a change.
    made = decide(making, Stored("c", 5, 100, 970_000), event(960_000), "c", HERE, NO)
    assert (made.outcome, made.record) == (Outcome.KNOWN, making.settled())
    ours = decide(making, B, event(960_000), "c", HERE, NO)
    assert (ours.outcome, ours.record) == (Outcome.MADE, making)


def test_later_change_is_made_and_an_earlier_one_is_not() -> None:
    found = decide(WEST, A, event(950_000, replaces=WEST.stamp), "b", HERE, NO)
    assert (found.outcome, found.undone) == (Outcome.MADE, None)
    assert found.record == PathRecord(Stamp(950_000, "east"), "b", WEST.stamp, Before("a", 3, 100))
    assert decide(WEST, A, event(850_000), "b", HERE, NO).outcome is Outcome.OLD
    # A change of this cluster's own, of which another one tells it: its store was lost.
    assert decide(WEST, A, event(950_000, "west"), "b", HERE, NO).outcome is Outcome.MADE
    assert decide(WEST, A, event(950_000), "a", HERE, NO).outcome is Outcome.NOTED


def test_change_for_which_an_event_is_passed_over_is_noted_as_it_may_be_taken_back() -> None:
    first = Stored("b", 0, 990_000, 990_000)
    found = decide(None, first, event(950_000), "c", HERE, NO)
    assert (found.outcome, found.record) == (Outcome.OLD, PathRecord(Stamp(990_000, "west"), "b", is_untold=True))
    found = decide(None, first, event(995_000, is_first=True), "c", HERE, NO)
    assert (found.outcome, found.record) == (Outcome.FIRST, PathRecord(Stamp(990_000, "west"), "b", is_untold=True))
    found = decide(EAST, B, event(940_000, "north"), "c", HERE, NO)
    assert found.record == PathRecord(Stamp(950_000, "west"), "b", EAST.stamp, is_untold=True)
    assert decide(EAST, B, event(900_000), "a", HERE, NO).record == found.record
    assert decide(found.record, B, event(940_000, "north"), "c", HERE, NO).record is None


def test_of_the_same_time_the_name_of_the_cluster_decides() -> None:
    assert decide(WEST, A, event(900_000), "b", HERE, NO).outcome is Outcome.OLD
    assert decide(WEST, A, event(900_000, "zulu"), "b", HERE, NO).outcome is Outcome.MADE


def test_event_that_comes_again_is_known() -> None:
    assert decide(EAST, A, event(900_000), "a", HERE, NO).outcome is Outcome.KNOWN
    assert decide(WEST, A, event(800_000), "z", HERE, NO).outcome is Outcome.KNOWN


def test_change_that_comes_to_nothing_unseen_is_told() -> None:
    # Ours, which the other did not see.
    assert decide(WEST, A, event(950_000, replaces=Stamp(800_000, "east")), "b", HERE, NO).undone == WEST.stamp
    assert decide(WEST, A, event(950_000), "b", HERE, NO).undone == WEST.stamp
    # One that nobody told of yet.
    assert decide(EAST, B, event(990_000, replaces=EAST.stamp), "c", HERE, NO).undone == Stamp(950_000, "west")
    # Theirs, which is too late.
    assert decide(WEST, A, event(850_000), "b", HERE, NO).undone == Stamp(850_000, "east")
    # What is alike is not undone.
    assert decide(WEST, A, event(950_000), "a", HERE, NO).undone is None
    assert decide(WEST, A, event(850_000), "a", HERE, NO).undone is None


def test_apache_tells_not_what_it_saw_so_that_time_decides_what_is_told() -> None:
    soon, later = (WEST.stamp.time_ms + UNSEEN_MS + more for more in (0, 1))
    assert decide(WEST, A, event(soon, tells=False), "b", HERE, NO).undone == WEST.stamp
    assert decide(WEST, A, event(later, tells=False), "b", HERE, NO).undone is None


def test_change_of_the_far_future_is_refused() -> None:
    ahead = HERE.now_ms + AHEAD_MS_MAX
    assert decide(WEST, A, event(ahead), "b", HERE, NO).outcome is Outcome.MADE
    assert decide(WEST, A, event(ahead + 1), "b", HERE, NO).outcome is Outcome.AHEAD


def test_what_another_cluster_had_before_is_made_only_where_there_is_nothing() -> None:
    first = event(950_000, is_first=True)
    assert decide(None, ABSENT, first, "b", HERE, NO).outcome is Outcome.MADE
    there = decide(None, A, first, "b", HERE, NO)
    assert (there.outcome, there.undone) == (Outcome.FIRST, first.stamp)
    assert decide(None, A, first, "a", HERE, NO).undone is None
    # Alike before: the later stamp is that of both.
    mine = PathRecord(Stamp(900_000, "west"), "a", is_first=True)
    same = decide(mine, A, first, "a", HERE, NO)
    assert (same.outcome, same.record) == (
        Outcome.NOTED,
        PathRecord(first.stamp, "a", mine.stamp, is_first=True, is_unseen=True),
    )
    assert decide(mine, A, first._replace(stamp=Stamp(1, "east")), "a", HERE, NO).outcome is Outcome.OLD
    # A change since then is one, though it says the same.
    assert decide(WEST, A, first, "a", HERE, NO).outcome is Outcome.FIRST
    # Deleted since: what is older stays so.
    gone = PathRecord(Stamp(960_000, "west"), NOTHING)
    assert decide(gone, ABSENT, first, "b", HERE, NO).outcome is Outcome.OLD
    # So does what is newer: whoever comes with a `public/default` of its own brings back none that was deleted.
    gone = PathRecord(Stamp(940_000, "north"), NOTHING)
    late = decide(gone, ABSENT, first, "b", HERE, NO)
    assert (late.outcome, late.record, late.undone) == (Outcome.FIRST, None, first.stamp)
    # A change that is not told yet is noted, as it may be taken back.
    unseen = PathRecord(Stamp(940_000, "west"), "a")
    deleted = decide(unseen, ABSENT, first._replace(stamp=Stamp(1_000_100, "east")), "b", HERE, NO)
    assert deleted.outcome is Outcome.FIRST
    assert deleted.record == PathRecord(Stamp(HERE.now_ms, "west"), NOTHING, unseen.stamp, is_untold=True)


def test_deletion_outlives_a_late_write() -> None:
    found = decide(WEST, A, event(950_000, value=None), NOTHING, HERE, NO)
    assert (found.outcome, found.record.digest) == (Outcome.MADE, NOTHING)
    tombstone = found.record.settled()
    assert change_here(tombstone, ABSENT, HERE) is None
    assert decide(tombstone, ABSENT, event(940_000, "north"), "b", HERE, NO).outcome is Outcome.OLD
    assert decide(None, ABSENT, event(950_000, value=None), NOTHING, HERE, NO).outcome is Outcome.NOTED


def test_what_is_needed_here_is_held_though_it_is_deleted_elsewhere() -> None:
    keeps = Objections(keeps="topics of it are stored here")
    found = decide(WEST, A, event(950_000, value=None), NOTHING, HERE, keeps)
    assert (found.outcome, found.record) == (
        Outcome.HELD,
        PathRecord(Stamp(950_000, "east"), NOTHING, WEST.stamp, held="a", is_unseen=True),
    )
    assert change_here(found.record, A, HERE) is None
    assert change_here(found.record, ABSENT, HERE) == found.record.settled()
    # What is said here since is told, by one that does not claim to follow the deletion.
    change = change_here(found.record, B, HERE)
    assert isinstance(change, Announcement)
    assert (change.stamp, change.replaces) == (Stamp(950_001, "west"), None)


def test_what_had_not_seen_a_change_does_not_claim_so_when_it_is_told_again() -> None:
    """It did: the other cluster took it for agreed, and lost a namespace of its own."""
    held = PathRecord(Stamp(950_000, "east"), "b", WEST.stamp, held="a")
    change = change_here(held, Stored("c", 4, 100, 960_000), HERE)
    assert isinstance(change, Announcement)
    again = change_here(change.record, Stored("c", 4, 100, 960_000), HERE)
    assert isinstance(again, Announcement)
    assert (change.replaces, again.replaces, again.record.settled().seen) == (None, None, None)
    # What came once more is still known.
    assert decide(again.record, Stored("c", 4, 100), event(950_000), "b", HERE, NO).outcome is Outcome.KNOWN
    # Nor does who tells a third cluster of it.
    made = decide(WEST, A, event(950_000), "b", HERE, NO)
    assert made.record is not None
    assert (made.record.replaced, made.record.seen) == (WEST.stamp, None)
    followed = decide(WEST, A, event(950_000, replaces=WEST.stamp), "b", HERE, NO)
    assert followed.record is not None
    assert followed.record.seen == WEST.stamp


def test_fewer_partitions_than_are_stored_here_are_answered_with_as_many() -> None:
    found = decide(WEST, A, event(1_000_500), "b", HERE, Objections(shrinks=True))
    assert found.outcome is Outcome.COUNTERED
    assert found.announcement == Announcement(
        PathRecord(Stamp(1_000_501, "west"), "a", Stamp(1_000_500, "east"), is_untold=True)
    )
    assert found.announcement.replaces == Stamp(1_000_500, "east")


@pytest.mark.parametrize(
    ("record", "stored", "objections", "outcome"),
    [
        (WEST, A, NO, Outcome.COUNTERED),
        (EAST, A, NO, Outcome.COUNTERED),
        (None, A, NO, Outcome.COUNTERED),
        # Partitions that are stored there would be reached by nobody.
        (WEST, A, Objections(grows=True), Outcome.MADE),
        (None, ABSENT, NO, Outcome.MADE),
        (WEST._replace(digest=NOTHING), ABSENT, NO, Outcome.MADE),
        # Deleted there, and here as soon as nothing needs it.
        (EAST._replace(digest=NOTHING, held="a"), A, NO, Outcome.MADE),
    ],
)
def test_what_apache_s_broker_makes_replaces_nothing(
    record: PathRecord | None, stored: Stored, objections: Objections, outcome: Outcome
) -> None:
    made = event(1_000_500, tells=False)._replace(is_creation=True)
    assert decide(record, stored, made, "b", HERE, objections).outcome is outcome
    assert decide(record, stored, made._replace(is_creation=False), "b", HERE, objections).outcome is Outcome.MADE


def test_what_a_backup_had_is_no_change() -> None:
    assert adopted(None, ABSENT, HERE) is None
    assert adopted(None, A, HERE) == PathRecord(Stamp(1, "west"), "a", is_first=True)
    assert adopted(WEST, A, HERE) is None
    untold = WEST._replace(is_untold=True)
    assert adopted(untold, A, HERE) is None
    # What the record says may be told again, and is later then.
    before = PathRecord(Stamp(899_999, "west"), "b")
    assert adopted(untold, B, HERE) == adopted(EAST, B, HERE) == before
    assert decide(before, B, event(900_000), "a", HERE, NO).outcome is Outcome.MADE
    assert adopted(EAST, ABSENT, HERE) == before._replace(digest=NOTHING)
    held = EAST._replace(digest=NOTHING, held="a")
    assert adopted(held, A, HERE) is None
    # Versions and times are others after that: nobody can tell whether it was made.
    making = WEST._replace(before=Before("b", 4, 100))
    assert adopted(making, A, HERE) == WEST
    assert adopted(making, B, HERE) == before


@pytest.mark.parametrize(
    ("record", "found", "outcome"),
    [
        (WEST, event(950_000, replaces=WEST.stamp), Outcome.MADE),
        (WEST, event(950_000, replaces=Stamp(1, "east")), Outcome.HELD),
        (WEST, event(950_000), Outcome.HELD),
        (None, event(950_000), Outcome.HELD),
        # Of Apache's: it is taken at its word where both agreed on something before.
        (EAST, event(950_000, tells=False), Outcome.MADE),
        (WEST, event(950_000, tells=False), Outcome.HELD),
        (EAST._replace(held="a", digest="z"), event(950_000, tells=False), Outcome.HELD),
    ],
)
def test_cluster_is_taken_out_of_a_namespace_by_who_saw_what_it_says(
    record: PathRecord | None, found: SyncEvent, outcome: Outcome
) -> None:
    assert decide(record, A, found, "b", HERE, Objections(leaves=True)).outcome is outcome
