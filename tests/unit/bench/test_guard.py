"""The guard on speed: what callgrind wrote, what is planted, what is red."""

from __future__ import annotations

import pytest
from bench.guard import callgrind
from bench.guard.planting import planted, turns_for
from bench.guard.rows import ROWS
from bench.guard.trees import differ_by_imports_only
from bench.guard.verdict import JUDGED, JUDGED_CLUSTER, Verdict, judge, paragraph
from bench.servers import BenchError

OUT = """events: Ir
fn=(1) main
0 10
cfn=(2) _PyObject_Malloc
calls=3 0
0 60
fn=(3) other
0 5
cfn=(2)
calls=4 0
0 80
summary: 18446744073709543434
totals: 155
"""


def test_callgrind_output_gives_its_totals_and_calls_under_compressed_names():
    assert callgrind.instructions(OUT) == 155
    assert callgrind.calls_of(OUT, ("_PyObject_Malloc",)) == 7
    assert callgrind.calls_of(OUT, ("other",)) == 0


def test_callgrind_output_without_a_count_is_refused():
    with pytest.raises(BenchError, match="counted nothing"):
        callgrind.instructions("events: Ir\ntotals: 0\n")


def test_callgrind_that_is_not_installed_is_named_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="needs valgrind"):
        callgrind.command(tmp_path)


def test_verdict_is_red_above_the_limit_only():
    assert not judge("row", {"instructions": 100}, {"instructions": 103}, JUDGED).is_red
    assert judge("row", {"instructions": 100}, {"instructions": 103.1}, JUDGED).is_red


def test_verdict_is_red_where_what_is_compiled_costs_more_than_what_is_not():
    base, tree = {"instructions": 200}, {"instructions": 100}
    good = judge("row", base, tree, JUDGED, compiled={"instructions": 50})
    assert (good.is_red, good.ratio(), good.ratio(of_compiled=True)) == (False, 0.5, 0.25)
    bad = judge("row", base, tree, JUDGED, compiled={"instructions": 104})
    assert "row: +4.00 % instructions compiled" in paragraph([bad], "abc")
    assert judge("row", base, tree, JUDGED, compiled={}).word == "NOT MEASURED"


def test_verdict_of_a_cluster_is_red_by_allocations_alone():
    base = {"instructions": 100, "calls": 10, "allocations": 10}
    assert judge("row", base, base | {"allocations": 11}, JUDGED_CLUSTER).dearer == ("allocations",)


def test_verdict_without_figures_of_base_is_not_green():
    verdict = judge("row", {}, {"instructions": 1}, JUDGED)
    assert verdict.is_red
    assert verdict.word == "NOT MEASURED"
    assert "row: no instructions" in paragraph([verdict], "abc")


def test_paragraph_names_the_red_rows_and_the_dearest_green_one():
    green = judge("one", {"instructions": 100}, {"instructions": 101}, JUDGED)
    red = Verdict("two", {"instructions": 100}, {"instructions": 105}, ("instructions",))
    assert "two: +5.00 % instructions" in paragraph([green, red], "abc")
    assert "the dearest is one with +1.00 %" in paragraph([green], "abc")


def test_planted_loop_is_behind_the_docstring_and_runs_before_the_rest():
    source = 'class A:\n    def f(self):\n        """Doc."""\n        return 7\n'
    found = planted(source, "A.f", 5)
    assert "[None] * 5" in found.splitlines()[3]
    space: dict = {}
    exec(found, space)
    assert space["A"]().f() == 7


def test_planting_where_there_is_no_such_function_is_refused():
    with pytest.raises(BenchError, match="there is no f"):
        planted("x = 1\n", "f", 5)


def test_turns_of_a_plant_follow_from_what_a_probe_cost():
    assert turns_for(0.05, clean=1000, probed=3000, probe_turns=1000) == 25
    with pytest.raises(BenchError, match="does not run through"):
        turns_for(0.05, clean=1000, probed=1000, probe_turns=1000)


def test_every_row_is_judged_by_instructions():
    assert len(ROWS) == 13
    assert all("instructions" in row.judged for row in ROWS.values())


def test_a_base_measures_with_its_own_names_and_no_other_load() -> None:
    ours = "from geminga.broker.composition.service import Broker\n\nasync def load():\n    await Broker().send()\n"
    theirs = "from geminga.broker.service import Broker\n\nasync def load():\n    await Broker().send()\n"
    assert differ_by_imports_only(theirs, ours)
    assert not differ_by_imports_only(theirs.replace("send()", "send(2)"), ours)
    assert differ_by_imports_only('HOT = "broker/service.py"', 'HOT = "broker/composition/service.py"')
