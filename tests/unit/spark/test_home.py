"""A local session gets a home without the zip of sources; whoever chose for himself keeps his choice."""

import os
import sys
from pathlib import Path

import pytest

from geminga.spark.process.home import PARTS, quick_home


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """As PySpark's wheel has it; no variable is set that a user could have set."""
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    directory = tmp_path / "pyspark"
    for part in ("jars", "bin", "python/lib"):
        (directory / part).mkdir(parents=True)
    (directory / "python" / "lib" / "pyspark.zip").touch()
    return directory


def test_home_has_the_installed_parts_and_no_zip_and_only_while_the_session_starts(installed, tmp_path):
    with quick_home("local[2]", {}, installed) as home:
        assert home is not None
        assert home.is_relative_to(tmp_path / "cache" / "geminga")
        assert os.environ["SPARK_HOME"] == str(home)
        assert sorted(path.name for path in home.iterdir()) == sorted(PARTS)
        assert (home / "jars").resolve() == installed / "jars"
    assert "SPARK_HOME" not in os.environ


def test_second_start_takes_the_same_home(installed):
    with quick_home("local", {}, installed) as first:
        pass
    with quick_home(None, {"spark.master": "local[*]"}, installed) as second:
        assert second == first


def test_variable_is_gone_after_a_start_that_failed(installed):
    with pytest.raises(RuntimeError), quick_home("local", {}, installed):
        raise RuntimeError
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize(("master", "settings"), [("yarn", {}), ("spark://host:7077", {}), (None, {})])
def test_other_masters_keep_sparks_own_home(installed, master, settings):
    with quick_home(master, settings, installed) as home:
        assert home is None
        assert "SPARK_HOME" not in os.environ


def test_home_that_was_chosen_is_kept(installed, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/somewhere")
    with quick_home("local", {}, installed) as home:
        assert home is None
    assert os.environ["SPARK_HOME"] == "/somewhere"


@pytest.mark.parametrize("is_setting", [True, False])
def test_other_pythons_need_not_have_pyspark(installed, monkeypatch, is_setting):
    settings = {"spark.pyspark.python": "/other/python"} if is_setting else {}
    if not is_setting:
        monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    with quick_home("local", settings, installed) as home:
        assert home is None


def test_own_python_that_was_named_is_no_other(installed, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with quick_home("local", {}, installed) as home:
        assert home is not None


def test_cache_that_can_not_be_written_leaves_sparks_own_home(installed, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with quick_home("local", {}, installed) as home:
        assert home is None


def test_spark_that_is_not_the_wheels_is_left_alone(installed):
    (installed / "jars").rmdir()
    with quick_home("local", {}, installed) as home:
        assert home is None


def test_pyspark_that_only_the_program_finds_is_left_to_the_zip(installed, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    with quick_home("local", {}, installed) as home:
        assert home is None
