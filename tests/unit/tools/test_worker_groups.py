"""Which tests share a worker of ``make test``."""

from __future__ import annotations

from support.source_tree import ROOT
from support.worker_groups import GROUPS, ORDER, group_of


def test_tests_with_the_session_are_one_group_and_the_others_of_the_connector_are_none_of_it() -> None:
    paths = list((ROOT / "tests" / "integration" / "spark").glob("test_*.py"))
    assert len(paths) > 10
    for path in paths:
        wanted = "spark" if "spark_session" in path.read_text(encoding="utf-8") else "connector"
        assert group_of(f"{path.relative_to(ROOT)}::test_some") == wanted, path.name


def test_every_group_has_tests_and_a_name_leads_to_a_file() -> None:
    for names in GROUPS.values():
        for name in names:
            assert (ROOT / "tests" / name).exists(), name


def test_every_group_has_its_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(GROUPS)


def test_tests_of_one_group_stay_together_and_others_are_alone() -> None:
    assert group_of("tests/integration/spark/test_spark_docs.py::test_a") == "spark"
    assert group_of("integration/spark/test_spark_sink_writer.py::test_a") == "connector"
    assert group_of("tests/integration/test_stop.py::test_a") == "clocks"
    assert group_of("tests/integration/test_zookeeper.py::test_a") == "cluster"
    assert group_of("tests/unit/sim/test_node.py::test_a[1]") == "tests/unit/sim/test_node.py::test_a[1]"
