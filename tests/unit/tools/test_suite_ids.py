"""What became of the tests of another commit."""

from __future__ import annotations

from tools.suite_ids import Fate, fates, new, shares, table

BEFORE = ["tests/a.py::one", "tests/a.py::two", "tests/b.py::three[x]", "tests/b.py::four", "tests/c.py::five"]
COSTS = {"tests/a.py::one": (1.0, 2.0), "tests/b.py::four": (3.0, 3.0)}


def test_each_test_is_the_same_long_merged_or_gone() -> None:
    found = fates(
        BEFORE,
        {"tests/a.py::one", "tests/a.py::two", "tests/d.py::new"},
        {"tests/a.py::one", "tests/a.py::two", "tests/b.py::four"},
        {"tests/c.py::five": "tests/d.py::new"},
    )
    assert found == {
        "tests/a.py::one": Fate("same"),
        "tests/a.py::two": Fate("same"),
        "tests/b.py::three[x]": Fate("gone"),
        "tests/b.py::four": Fate("long"),
        "tests/c.py::five": Fate("merged", "tests/d.py::new"),
    }
    assert table(found, COSTS).splitlines() == [
        "same\ttests/a.py\t2\t1.0",
        "gone\ttests/b.py::three[x]\t0.0",
        "long\ttests/b.py::four\t3.0",
        "merged\ttests/c.py::five\t0.0\ttests/d.py::new",
    ]
    assert "long         1 tests ( 20.0%)      3.0 CPU s ( 75.0%)" in shares(found, COSTS).splitlines()


def test_who_has_its_name_in_another_file_has_moved() -> None:
    former = "tests/a.py::acknowledg" + "ement[1]"
    before = [
        former,
        "tests/a.py::twice",
        "tests/b.py::twice",
        "tests/a.py::somewhere",
        "tests/a.py::slow",
        "tests/a.py::stays",
    ]
    now = {
        "tests/a.py::acknowledgment[1]",
        "tests/a.py::acknowledgment[2]",
        "tests/b.py::acknowledgment[1]",
        "tests/c.py::slow",
        "tests/c.py::somewhere",
        "tests/d.py::somewhere",
        "tests/b.py::twice",
        "tests/c.py::stays",
        "tests/a.py::stays",
    }
    found = fates(before, now - {"tests/c.py::slow"}, now, {})
    assert found == {
        former: Fate("moved", "tests/a.py::acknowledgment[1]"),
        "tests/a.py::twice": Fate("gone"),  # the other one was there before
        "tests/b.py::twice": Fate("same"),
        "tests/a.py::somewhere": Fate("gone"),  # which of two?
        "tests/a.py::slow": Fate("long", "tests/c.py::slow"),
        "tests/a.py::stays": Fate("same"),
    }


def test_a_name_without_parameters_stands_for_all_that_it_had() -> None:
    merged = {"tests/a.py::one": "built since", "tests/a.py::one[2]": "tests/b.py::two"}
    found = fates(["tests/a.py::one[1]", "tests/a.py::one[2]"], set(), set(), merged)
    assert found == {
        "tests/a.py::one[1]": Fate("merged", "built since"),
        "tests/a.py::one[2]": Fate("merged", "tests/b.py::two"),
    }


def test_as_many_cases_with_other_parameters_are_the_same_test() -> None:
    before = ["tests/a.py::one[1]", "tests/a.py::one[2]", "tests/a.py::few[1]", "tests/a.py::few[2]"]
    now = {"tests/a.py::one[a]", "tests/a.py::one[b]", "tests/a.py::few[2]"}
    assert fates(before, now, now, {}) == {
        "tests/a.py::one[1]": Fate("other", "tests/a.py::one"),
        "tests/a.py::one[2]": Fate("other", "tests/a.py::one"),
        "tests/a.py::few[1]": Fate("gone"),  # one case less
        "tests/a.py::few[2]": Fate("same"),
    }


def test_who_stands_for_no_test_of_the_commit_is_new() -> None:
    before = ["tests/a.py::stays", "tests/a.py::moves", "tests/a.py::one[1]", "tests/a.py::former"]
    now = {
        "tests/a.py::stays",
        "tests/b.py::moves",
        "tests/a.py::one[a]",
        "tests/a.py::one[b]",
        "tests/a.py::heir[1]",
        "tests/a.py::young",
    }
    found = fates(before, now, now, {"tests/a.py::former": "tests/a.py::heir"})
    assert new(found, now) == ["tests/a.py::young"]
