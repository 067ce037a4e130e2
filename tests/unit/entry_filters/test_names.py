"""Which filters there are by name, and what is never imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from geminga.entry_filters.names import NAMES_MAX, FilterNameError, check_names, is_declared, load, names_of


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "mine.py").write_text("def keep(entry):\n    return 1\nnumber = 3\n")
    (tmp_path / "broken.py").write_text("raise OSError('at import')\n")
    return str(tmp_path)


def test_names_have_commas_between_them():
    assert names_of(" a, b:c ,,") == ("a", "b:c")
    assert names_of(" , ") == ()


@pytest.mark.parametrize(
    "name", ["os:system", "../mine:keep", "mine.keep", "mine", "mine:keep:x", "/tmp/mine:keep", ""]
)
def test_only_files_of_the_directory_are_known(name, directory):
    assert not is_declared(name, directory)
    with pytest.raises(FilterNameError, match="not found"):
        check_names((name,), directory)


def test_a_callable_of_a_file_is_loaded(directory, monkeypatch):
    # The working directory is none of filters.
    monkeypatch.chdir(directory)
    check_names(("mine:keep",), directory)
    assert load("mine:keep", directory)(None) == 1
    assert not is_declared("mine:keep", "")


def test_a_file_may_have_what_python_looks_up_by_its_module(directory):
    (Path(directory) / "json.py").write_text(
        "from __future__ import annotations\n"
        "import json, pickle\n"
        "from dataclasses import dataclass\n"
        "from typing import get_type_hints\n"
        "@dataclass(frozen=True)\n"
        "class Rule:\n"
        "    region: str = 'eu'\n"
        "RULE = pickle.loads(pickle.dumps(Rule()))\n"
        "def keep(entry):\n"
        "    return RULE == Rule() and get_type_hints(Rule)['region'] is str and json.loads('1')\n"
    )
    before = set(sys.modules)
    assert load("json:keep", directory)(None) == 1
    assert sys.modules["json"] is json
    with pytest.raises(FilterNameError):
        load("broken:f", directory)
    (made,) = {name for name in set(sys.modules) - before if "entry_filter" in name}
    del sys.modules[made]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mine:absent", "mine.py has no absent"),
        ("mine:number", "it is int, which can not be called"),
        ("broken:f", "it can not be loaded: OSError: at import"),
        ("absent:f", "it is not found"),
    ],
)
def test_what_can_not_be_loaded_says_why(name, told, directory):
    with pytest.raises(FilterNameError, match=told):
        load(name, directory)


def test_so_many_filters_are_taken(directory):
    check_names(("mine:keep",) * NAMES_MAX, directory)
    with pytest.raises(FilterNameError, match=f"{NAMES_MAX + 1} entry filters, at most {NAMES_MAX}"):
        check_names(("mine:keep",) * (NAMES_MAX + 1), directory)
