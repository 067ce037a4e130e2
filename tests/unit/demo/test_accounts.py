"""What must come out of the windows: against a reader that cuts batches anywhere, and with everything wrong planted."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Callable

import pytest
from demo.accounts import Expected, Found, SideRow, Unclear, audit, balance, delay_for, expect, side_row
from demo.spark_kills import control_failures
from demo.troubled import DAY_MS, Row, Troubled, sent_again, troubled
from demo.weekly import Sums, WindowKey, weekly

from support.house.weekly_sample import sampled


@pytest.fixture(scope="module")
def made() -> Troubled:
    return troubled(11, 2400, 100, large=0)


@pytest.fixture(scope="module")
def expected(made: Troubled) -> Expected:
    return expect(made.rows, batch=made.batch, delay_ms=made.delay_ms)


def read_in_batches(rows: list[Row], batch: int, delay_ms: int, seed: int) -> Found:
    """As Spark does it: four partitions out of step by less than a batch, batches of any size up to the largest.

    A window takes what is after the watermark, which is that of the batches before, and each id once.
    """
    rng = random.Random(seed)
    lead = [rng.randrange(batch) for _ in range(4)]
    order = sorted(range(len(rows)), key=lambda number: (number - lead[number % 4], number))
    latest = watermark = 0
    ids: set[str] = set()
    values, late, refused = [], Counter[SideRow](), Counter[SideRow]()
    while order:
        size = rng.randrange(1, batch + 1)
        taken, order = order[:size], order[size:]
        for row in (rows[number] for number in taken):
            side = side_row(row.key, row.value, row.at_ms)
            if row.at_ms is None or not row.id:
                refused[side] += 1
            elif row.at_ms <= watermark:
                late[side] += 1
            elif row.id not in ids:
                ids.add(row.id)
                values.append(row.value)
            latest = max(latest, row.at_ms if row.at_ms is not None and row.id else 0)
        watermark = max(watermark, latest - delay_ms)
    windows = list(weekly(values).items())
    return Found(windows, list(windows), late, refused)


@pytest.mark.parametrize("seed", sampled("accounts", range(40), 14))
def test_what_is_expected_comes_out_wherever_batches_are_cut(seed: int) -> None:
    made = troubled(seed, 1500, 60, large=0)
    expected = expect(made.rows, batch=made.batch, delay_ms=made.delay_ms)
    found = read_in_batches(made.rows, made.batch, made.delay_ms, seed)
    assert audit(found, expected) == []
    assert balance(found, expected).sum == 1500


@pytest.mark.parametrize("seed", sampled("accounts, 2", range(10), 4))
def test_rows_sent_again_are_duplicates_or_late_and_windows_stay_as_they_were(seed: int) -> None:
    plain = [row for row in troubled(seed, 1500, 60, large=0, broken=0).rows if row.id]
    plain = list({row.id: row for row in plain}.values())
    delay_ms = delay_for(plain, 80)
    rows = sent_again(plain, seed, 60, delay_ms, apart=10)
    expected = expect(rows, batch=60, delay_ms=delay_ms)
    assert expected.windows == weekly(row.value for row in plain)
    assert expected.late.total() + expected.duplicates == len(rows) - len(plain)
    assert audit(read_in_batches(rows, 60, delay_ms, seed), expected) == []


def test_a_row_that_may_be_late_or_not_is_refused(made: Troubled) -> None:
    # As old as the watermark is when the rows before it have been read, if all of them have.
    number = 2000
    border = max(row.at_ms for row in made.rows[:number] if row.at_ms is not None) - made.delay_ms
    rows = [*made.rows[:number], Row("r", b"{}", border, "new", is_first=True), *made.rows[number:]]
    with pytest.raises(Unclear, match=r"row 2,000 .* is late or not"):
        expect(rows, batch=made.batch, delay_ms=made.delay_ms)


def test_an_id_of_two_events_is_refused() -> None:
    rows = [Row("r", b'{"a":1}', DAY_MS, "one", is_first=True), Row("r", b'{"a":2}', DAY_MS, "one", is_first=True)]
    with pytest.raises(Unclear, match="has the id one of another event"):
        expect(rows, batch=10, delay_ms=DAY_MS)


def found_right(expected: Expected) -> Found:
    windows = list(expected.windows.items())
    return Found(windows, list(windows), Counter(expected.late), Counter(expected.refused))


def one_more(pairs: list[tuple[WindowKey, Sums]], index: int) -> None:
    key, sums = pairs[index]
    pairs[index] = (key, sums._replace(commits=sums.commits + 1))


def first_of(rows: Counter[SideRow]) -> SideRow:
    return next(iter(rows))


#: What is done to a right result, and what is said about it.
WRONG: dict[str, tuple[Callable[[Found], object], str]] = {
    "a window twice in B": (
        lambda found: found.messages.append(found.messages[0]),
        "topic B: 1 windows are there more",
    ),
    "a row twice in the table": (
        lambda found: found.table.append(found.table[-1]),
        "the table: 1 windows are there more",
    ),
    "a window missing in B": (lambda found: found.messages.pop(), "topic B: 1 windows are missing"),
    "a row missing in the table": (lambda found: found.table.pop(), "the table: 1 windows are missing"),
    "a sum wrong in B": (lambda found: one_more(found.messages, 7), "topic B: 1 windows differ"),
    "a sum wrong in the table": (lambda found: one_more(found.table, 7), "the table: 1 windows differ"),
    "a late row lost": (lambda found: found.late.subtract([first_of(found.late)]), "1 late rows are missing"),
    "a late row twice": (lambda found: found.late.update([first_of(found.late)]), "1 late rows are too many"),
    "a refused row lost": (
        lambda found: found.refused.subtract([first_of(found.refused)]),
        "1 refused rows are missing",
    ),
    "a row late that was not": (lambda found: found.late.update([SideRow("r", "", 5)]), "1 late rows are too many"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(expected: Expected, name: str) -> None:
    right = found_right(expected)
    assert audit(right, expected) == []
    spoil, told = WRONG[name]
    spoil(right)
    assert any(reason.startswith(told) for reason in audit(right, expected)), audit(right, expected)


def test_rows_that_do_not_add_up_are_told_with_the_sum(expected: Expected) -> None:
    found = found_right(expected)
    one_more(found.messages, 0)
    assert any(reason.startswith("2,400 rows went in, but ") for reason in audit(found, expected))


def test_of_changes_the_last_one_of_a_window_counts(expected: Expected) -> None:
    found = found_right(expected)
    for pairs in (found.messages, found.table):
        key, sums = pairs[0]
        pairs.insert(0, (key, sums._replace(commits=0)))
    assert audit(found, expected, is_once=False) == []
    assert len(audit(found, expected)) == 2


def test_a_control_passes_if_a_window_came_twice_and_nothing_is_missing(made: Troubled, expected: Expected) -> None:
    def judged(change: Callable[[Found], object]) -> list[str]:
        found = read_in_batches(made.rows, made.batch, made.delay_ms, 1)
        change(found)
        return control_failures(audit(found, expected))

    def twice(found: Found) -> None:
        found.messages.append(found.messages[0])
        found.late[next(iter(found.late))] += 1

    assert judged(twice) == []
    assert "came twice" in judged(lambda found: None)[0]
    assert judged(lambda found: (twice(found), found.late.popitem()))
    assert judged(lambda found: (found.messages.append(found.messages[0]), found.messages.pop(1)))
