"""What is compared of the histories of seeds, and what is told of a difference."""

from __future__ import annotations

from pathlib import Path

from tools.compiled import stale
from tools.seeds.histories import dealt, differences
from tools.seeds.seed import run_seed

LINE = {"history": "ab", "ok": True, "steps": 5, "virtual_s": 1.5, "struck": {"x": 1}, "cpu_s": 1.0}


def test_seeds_are_dealt_to_all_simulations() -> None:
    assert dealt(8, ["a", "b", "c"]) == {"a": 3, "b": 3, "c": 2}
    assert dealt(1, ["a", "b"]) == {"a": 1, "b": 0}


def test_histories_that_differ_are_told_and_cpu_time_may() -> None:
    pure = {("ring", 1): LINE, ("ring", 2): LINE}
    assert list(differences(pure, {("ring", 1): {**LINE, "cpu_s": 2.0}, ("ring", 2): LINE})) == []
    assert list(differences(pure, {("ring", 1): {**LINE, "history": "cd"}})) == [
        "ring seed 1: history ab pure, cd compiled",
        "ring seed 2: only pure",
    ]


def test_a_source_that_changed_since_is_found(tmp_path: Path) -> None:
    for tree in ("pure", "compiled"):
        (tmp_path / tree).mkdir()
        (tmp_path / tree / "a.py").write_text("1")
    assert list(stale(tmp_path / "pure", tmp_path / "compiled")) == []
    (tmp_path / "pure" / "a.py").write_text("2")
    (tmp_path / "pure" / "b.py").write_text("2")
    assert list(stale(tmp_path / "pure", tmp_path / "compiled")) == ["a.py", "b.py"]


def test_a_seed_tells_its_history_and_another_seed_another() -> None:
    first, second, again = (run_seed("storage", seed)["history"] for seed in (1, 2, 1))
    assert first == again != second
