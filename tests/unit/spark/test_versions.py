"""A PySpark that will not do ends in one sentence."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

import geminga.spark
from geminga.spark.process import versions
from geminga.spark.process.errors import PySparkMissingError
from geminga.spark.process.versions import is_new_enough, require_pyspark
from support.house.python_programs import run_python


@pytest.mark.parametrize(
    ("found", "expected"),
    [("4.2.0", True), ("4.3.0", True), ("4.10.0.dev1", True), ("5.0", True), ("4.1.4", False), ("3.5.9", False)],
)
def test_version_is_compared_by_numbers(found, expected):
    assert is_new_enough(found) is expected


def test_missing_pyspark_is_one_sentence_with_the_command(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(
        PySparkMissingError, match=r"^geminga\.spark needs PySpark 4\.2 or newer, and none is installed"
    ):
        require_pyspark()
    with pytest.raises(ImportError, match="none is installed"):
        _ = geminga.spark.session


def test_older_pyspark_is_named(monkeypatch):
    monkeypatch.setattr(versions, "version", lambda _: "3.5.1")
    with pytest.raises(PySparkMissingError, match=r"4\.2 or newer, but 3\.5\.1 is installed"):
        require_pyspark()


def test_importing_the_client_and_the_package_imports_no_pyspark():
    program = (
        "import sys, geminga, geminga.client, geminga.spark; print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))"
    )
    done = run_python(program)
    assert done.stdout.strip() == "[]"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = geminga.spark.nothing
