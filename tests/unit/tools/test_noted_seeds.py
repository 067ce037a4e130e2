"""Which noted seeds are stale: on a scenario that fails for even seeds while its defect is planted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools import noted_seeds as tool

from geminga.sim import SimWorld
from support.house import noted_seeds as notes

SCENARIO = "even_fails"


class Planted:
    """A defect, the scenario that catches it, and the seeds that were tried with it."""

    def __init__(self) -> None:
        self.stands = False
        self.tried: list[int] = []

    async def even_fails(self, world: SimWorld) -> None:
        if self.stands:
            self.tried.append(world.seed)
            assert world.seed % 2, "an even seed"

    @contextmanager
    def plant(self) -> Iterator[None]:
        self.stands = True
        yield
        self.stands = False


@pytest.fixture
def planted(monkeypatch, tmp_path) -> Iterator[Planted]:
    made = Planted()
    monkeypatch.setattr(
        tool,
        "defects",
        lambda: iter([tool.Defect(made.even_fails, why, made.plant) for why in ("one", "two", "three")]),
    )
    for module in (tool, notes):
        monkeypatch.setattr(module, "NOTED", tmp_path / "noted.json")
    notes.noted_seeds.cache_clear()
    yield made
    notes.noted_seeds.cache_clear()


def note(seeds: Mapping[str, int]) -> Path:
    notes.NOTED.write_text(json.dumps({SCENARIO: seeds}))
    return notes.NOTED


def test_check_with_seeds_that_all_catch_is_content(planted, capsys) -> None:
    note({"one": 4, "two": 6, "three": 8})
    tool.main(["--check"])
    assert planted.tried == [4, 6, 8]
    assert capsys.readouterr().out == ""


def test_check_names_what_catches_nothing_or_is_not_noted_and_writes_nothing(planted, capsys) -> None:
    noted = note({"one": 4, "two": 5})
    before = noted.read_text()
    with pytest.raises(SystemExit, match="2 stale"):
        tool.main(["--check"])
    assert planted.tried == [4, 5]
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" seed ")[2] for line in said] == ["5 is stale: two", "None is stale: three"]
    assert noted.read_text() == before


def test_stale_ones_alone_are_looked_for_anew(planted) -> None:
    noted = note({"one": 4, "two": 5, "three": 8})
    tool.main(["--stale", "--catches", "1"])
    assert json.loads(noted.read_text()) == {SCENARIO: {"one": 4, "two": 0, "three": 8}}
    assert planted.tried == [4, 5, 5, 0, 8]
