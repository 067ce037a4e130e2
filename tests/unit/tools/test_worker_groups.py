"""Which tests share a worker of ``make test``, and which begin first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.house.source_tree import ROOT
from support.house.worker_groups import GROUPS, GroupScheduling, group_of, ledger, share_of


def test_tests_with_the_session_are_one_group_and_the_others_of_the_connector_are_none_of_it() -> None:
    paths = list((ROOT / "tests" / "integration" / "spark").glob("test_*.py"))
    assert len(paths) > 10
    for path in paths:
        wanted = "spark" if "spark_session" in path.read_text(encoding="utf-8") else f"integration/spark/{path.name}"
        assert group_of(f"{path.relative_to(ROOT)}::test_some") == wanted, path.name


def test_every_group_has_tests_and_a_name_leads_to_a_file() -> None:
    for names in GROUPS.values():
        for name in names:
            assert (ROOT / "tests" / name).exists(), name


def test_tests_of_one_group_or_file_stay_together_and_simulations_are_alone() -> None:
    assert group_of("tests/integration/spark/test_spark_docs.py::test_a") == "spark"
    assert group_of("tests/integration/test_stop.py::test_a") == "clocks"
    assert group_of("tests/integration/test_zookeeper.py::test_a[x::y]") == "integration/test_zookeeper.py"
    assert group_of("unit/sim/test_node.py::test_a[1]") == group_of("tests/unit/sim/test_node.py::test_b")
    assert group_of("tests/simulation/test_schema_crash.py::test_a") == "simulation/test_schema_crash.py::test_a"


def test_a_group_takes_what_its_files_took_and_a_simulation_its_part_of_the_file() -> None:
    file = "simulation/test_schema_crash.py"
    cpu_s, wall_s = ledger()[file]
    assert share_of(f"{file}::test_a", 2) == pytest.approx((wall_s / 2, cpu_s / 2))
    assert share_of(file, 1) == (wall_s, cpu_s)
    assert share_of("unit/test_new.py", 1) == (0.0, 0.0)
    assert share_of("spark", 1).wall_s > ledger()["integration/spark/test_spark_docs.py"][1]


class Node:
    """A worker that is told which tests to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_waits_and_what_computes_longest_begin_and_each_test_is_given_out_once() -> None:
    config = SimpleNamespace(
        getvalue=lambda name: ["2*popen"], option=SimpleNamespace(loadscopereorder=True), hook=None, getoption=None
    )
    scheduling = GroupScheduling(config, None)
    files = (
        "unit/wire/test_markers.py",
        "unit/test_new.py",
        "integration/test_kill9.py",
        "interop/test_load_decisions.py",
    )
    tests = [f"tests/{file}::test_{n}" for file in files for n in range(3)]
    nodes = [Node(), Node()]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    # What is killed waits, what is decided computes.
    assert [node.told[:3] for node in nodes] == [[6, 7, 8], [9, 10, 11]]
    while scheduling.has_pending:
        for node in nodes:
            for index in node.told[:]:
                if any(
                    tests[index] in unit and not unit[tests[index]] for unit in scheduling.assigned_work[node].values()
                ):
                    scheduling.mark_test_complete(node, index)
    assert sorted(nodes[0].told + nodes[1].told) == list(range(12))
    assert not any(scheduling.assigned_work.values())
