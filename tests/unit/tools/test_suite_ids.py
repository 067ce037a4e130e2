"""What became of the tests of another commit."""

from __future__ import annotations

from tools.suite_ids import Fate, fates, shares, table

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
