"""``make mutants`` on a small planted package: who is caught, who survives, and what fails the command."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.mutants.drawing import changes_of, draw
from tools.mutants.plan import Package, PlanError, find_mutant, load_packages
from tools.mutants.planting import qualified_module
from tools.mutants.reach import probed

from support.house.source_tree import ROOT

SOURCE = '''"""A queue."""

LIMIT = 3


class Queue:
    """Takes no more than LIMIT."""

    def __init__(self):
        self.items = []
        self.refused = 0

    def add(self, item):
        """False if there is no room."""
        if len(self.items) >= LIMIT:
            self.refused += 1
            return False
        self.items.append(item)
        return True

    def drain(self):
        """Everything, oldest first."""
        taken = []
        while self.items:
            taken.append(self.items.pop(0))
        return taken
'''

TESTS = """from planted.queue import LIMIT, Queue


def test_full_queue_refuses():
    queue = Queue()
    assert [queue.add(i) for i in range(LIMIT + 1)] == [True, True, True, False]


def test_drained_queue_is_empty():
    queue = Queue()
    queue.add(1)
    assert (queue.drain(), queue.drain()) == ([1], [])
"""

CAUGHT = ("return False", "return True")
IMPORTED = ("LIMIT = 3", "LIMIT = 4")
ENDLESS = ("taken.append(self.items.pop(0))", "taken.append(self.items[0])")
SURVIVOR = ("self.refused += 1", "pass")
STALE = ("self.refused += 2", "pass")
EQUIVALENTS = [(SURVIVOR[0], f"self.refused += {number}") for number in range(2, 7)]
TWICE = ('"""Everything, oldest first."""', "pass")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with its tests, as small as one can be."""
    (tmp_path / "src/planted").mkdir(parents=True)
    (tmp_path / "src/planted/__init__.py").write_text("")
    (tmp_path / "src/planted/queue.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_queue.py").write_text(TESTS)
    return tmp_path


def write_package(tree: Path, mutants: list[tuple[str, str]], equivalents: list[tuple[str, str]] = ()) -> None:
    """The data file of the package ``planted``."""
    lines = ['sources = ["src/planted/"]', 'tests = ["tests"]', 'drawn = ["src/planted"]']
    for kind, changes in (("mutant", mutants), ("equivalent", equivalents)):
        for before, after in changes:
            lines += [f"[[{kind}]]", 'file = "src/planted/queue.py"', 'why = "so"']
            lines += [f"before = {json.dumps(before)}", f"after = {json.dumps(after)}"]
    (tree / "packages").mkdir(exist_ok=True)
    (tree / "packages/planted.toml").write_text("\n".join(lines))


def run(tree: Path, *arguments: str) -> tuple[int, dict]:
    """The exit code and what was told."""
    command = [sys.executable, "-m", "tools.mutants", f"--root={tree}", f"--packages={tree / 'packages'}"]
    done = subprocess.run(
        [*command, "--bare", "--draws=0", "--json=-", *arguments],
        cwd=ROOT,
        # Plugins of this environment, which the planted package has no use for, are most of what such a run costs.
        env={
            **os.environ,
            "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_caught_changes_pass_and_a_survivor_fails(tree: Path) -> None:
    write_package(tree, [CAUGHT, IMPORTED, SURVIVOR], EQUIVALENTS)
    code, told = run(tree)
    assert code == 1
    assert [(c["before"], c["outcome"]) for c in told["changes"] if not c["equivalent"]] == [
        (IMPORTED[0], "caught"),
        (SURVIVOR[0], "survived"),
        (CAUGHT[0], "caught"),
    ]
    [by] = [change["by"] for change in told["changes"] if change["before"] == CAUGHT[0]]
    assert "test_full_queue_refuses" in by
    assert [SURVIVOR[0] in failure for failure in told["failures"]] == [True]
    assert told["packages"][0]["tests"] == 2
    assert run(tree, "--only=LIMIT = 3")[0] == 0


WIDE_TESTS = """import subprocess
import sys

from planted.queue import Queue

REFUSED = "from planted.queue import Queue; q = Queue(); print([q.add(i) for i in range(4)], q.refused)"


def test_elsewhere_that_enters_nothing():
    assert Queue is not None


def test_elsewhere_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[True,", "True,", "True,", "False]", "1"]
"""


def test_survivor_is_tried_by_the_whole_suite_and_processes_of_its_tests(tree: Path) -> None:
    """Another package's test counts what its own do not; what nobody notices stays a survivor, and is told as one."""
    (tree / "tests/elsewhere").mkdir()
    (tree / "tests/elsewhere/test_wide.py").write_text(WIDE_TESTS)
    unnoticed = ("self.items = []", "self.items = list()")
    write_package(tree, [SURVIVOR, unnoticed])
    package = tree / "packages/planted.toml"
    package.write_text(package.read_text().replace('tests = ["tests"]', 'tests = ["tests/test_queue.py"]'))
    alone, _ = run(tree)
    code, told = run(tree, "--wide")
    counted, made = sorted(told["changes"], key=lambda change: change["line"], reverse=True)
    assert (alone, code) == (1, 1)
    assert counted["outcome"] == "caught", counted
    assert counted["by"].startswith("the whole suite: tests/elsewhere/test_wide.py::test_elsewhere_in_a_process_")
    assert (made["outcome"], made["by"]) == ("survived", "3 tests of 3 that enter it pass")
    assert (tree / "src/planted/queue.py").read_text() == SOURCE


def test_changes_from_everywhere_are_judged_by_the_whole_suite_alone(tree: Path) -> None:
    """No package names the module; both drawn changes are there, and the tests that enter the function see one."""
    (tree / "packages").mkdir()
    without_loops = SOURCE.partition("    def drain")[0]
    (tree / "src/planted/queue.py").write_text(without_loops)
    (tree / "src/planted/other.py").write_text("def unseen(a):\n    return 1 if a else 2\n")
    (tree / "tests/test_queue.py").write_text(TESTS.partition("def test_drained")[0])
    code, told = run(tree, "--everywhere", "--draws=100", "--only=test")
    assert (code, told["changes"]) == (0, [])
    code, told = run(tree, "--everywhere", "--draws=100")
    outcomes = {(change["before"], change["outcome"], change["by"].split(":")[0]) for change in told["changes"]}
    assert code == 1
    assert ("if len(self.items) >= LIMIT:", "caught", "the whole suite") in outcomes
    assert ("return 1 if a else 2", "survived", "no test of the suite enters it") in outcomes


def test_tests_that_enter_the_changed_function_come_first(tree: Path) -> None:
    """Before those in the file of the module's name, and quicker ones, that would notice the change as well."""
    (tree / "tests/test_queue.py").write_text(
        "from planted.queue import Queue\n\n\ndef test_code():\n    assert False in Queue.add.__code__.co_consts\n"
    )
    (tree / "tests/test_use.py").write_text(TESTS)
    write_package(tree, [CAUGHT])
    code, told = run(tree)
    assert (code, told["changes"][0]["by"].partition(":")[0]) == (0, "tests/test_use.py")


def test_unchanged_tests_that_notice_a_probe_are_run_without(tree: Path) -> None:
    with (tree / "tests/test_queue.py").open("a") as tests:
        tests.write("\n\ndef test_names():\n    assert len(Queue.add.__code__.co_names) == 5\n")
    write_package(tree, [CAUGHT])
    code, told = run(tree)
    assert (code, told["packages"][0]["tests"]) == (0, 3)


def test_probe_stands_in_the_innermost_function_and_moves_no_line() -> None:
    source = '''"""M."""

LIMIT = 3


async def outer(f):
    """D."""
    def inner():
        raise ValueError

    return inner

    class Within:
        def g(self): return 1
'''
    lines = dict(enumerate((3, 7, 9, 14)))
    before, after = ast.parse(source), probed(source, lines)
    outer = after.body[2]
    assert [ast.unparse(node) for node in outer.body[:2]] == ["'D.'", "_change_is_reached(1)"]
    assert ast.unparse(outer.body[2].body[0]) == "_change_is_reached(2)"
    assert ast.unparse(outer.body[4].body[0].body[0]) == "_change_is_reached(3)"
    assert "_change_is_reached(0)" not in ast.unparse(after)

    def placed(tree: ast.AST) -> list[tuple[str, int]]:
        return [(ast.unparse(node), node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Return)]

    assert placed(after) == placed(before)


def test_change_without_an_end_is_caught_and_said_to_be_a_time_out(tree: Path) -> None:
    write_package(tree, [ENDLESS])
    code, told = run(tree, "--test-cpu-s=0.5")
    assert (code, told["packages"][0]["timed_out"]) == (0, 1)
    assert told["changes"][0]["outcome"] == "timed out"


def test_change_that_waits_for_what_never_comes_is_caught(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    write_package(tree, [("return True", "__import__('threading').Event().wait()")])
    code, told = run(tree, "--test-wall-s=0.5")
    assert (code, told["changes"][0]["outcome"]) == (0, "caught")
    assert "Timeout" in told["changes"][0]["by"]


def test_line_that_is_gone_or_there_twice_fails(tree: Path) -> None:
    source = tree / "src/planted/queue.py"
    source.write_text(source.read_text().replace('"""False if there is no room."""', TWICE[0]))
    write_package(tree, [CAUGHT, STALE, TWICE])
    code, told = run(tree)
    assert code == 1
    assert [change["outcome"] for change in told["changes"]] == ["caught"]
    assert [failure.partition(":")[2].split()[0] for failure in told["failures"]] == ["0", "2"]


def test_sixth_equivalent_fails_and_so_does_one_that_is_noticed(tree: Path) -> None:
    write_package(tree, [], [*EQUIVALENTS, CAUGHT])
    code, told = run(tree)
    assert (code, len(told["failures"])) == (1, 2)
    assert "noticed" in told["failures"][0]
    assert "6 changes" in told["failures"][1]
    assert "at most 5" in told["failures"][1]


def test_tests_that_fail_unchanged_fail_the_command(tree: Path) -> None:
    write_package(tree, [CAUGHT])
    with (tree / "tests/test_queue.py").open("a") as tests:
        tests.write("\n\ndef test_wrong():\n    assert LIMIT == 4\n")
    code, told = run(tree)
    assert (code, told["changes"]) == (1, [])
    assert "test_wrong" in told["failures"][0]


def test_mutant_is_found_by_what_is_said_of_it(tree: Path) -> None:
    write_package(tree, [CAUGHT])
    assert find_mutant(tree, "so", tree / "packages") == load_packages(tree, tree / "packages")[0].mutants[0]
    with pytest.raises(PlanError, match=r"^0 mutants .*: otherwise"):
        find_mutant(tree, "otherwise", tree / "packages")


@pytest.mark.parametrize(
    ("mutants", "told"), [([CAUGHT, SURVIVOR], "^2 mutants"), ([STALE], "0 lines read")], ids=["two", "stale"]
)
def test_mutant_that_is_there_twice_or_stale_is_not_found(tree: Path, mutants: list, told: str) -> None:
    write_package(tree, mutants)
    with pytest.raises(PlanError, match=told):
        find_mutant(tree, "so", tree / "packages")


def test_draw_is_the_same_for_the_same_seed_and_hardly_changes_with_the_code(tree: Path) -> None:
    write_package(tree, [])
    packages = load_packages(tree, tree / "packages")
    first = draw(packages, tree, seed=1, count=6)
    assert [m.key for m in draw(packages, tree, seed=1, count=6)] == [m.key for m in first]
    assert [m.key for m in draw(packages, tree, seed=2, count=6)] != [m.key for m in first]
    (tree / "src/planted/queue.py").write_text("# A line more.\n" + SOURCE)
    assert [m.key for m in draw(packages, tree, seed=1, count=6)] == [m.key for m in first]


def test_draw_from_folders_has_changes_of_these_alone(tree: Path) -> None:
    write_package(tree, [])
    for folder in ("near", "nearer"):
        (tree / "src/planted" / folder).mkdir()
        (tree / "src/planted" / folder / "queue.py").write_text(SOURCE)
    packages = load_packages(tree, tree / "packages")
    every = draw(packages, tree, seed=1, count=100)
    for folders in ([], ["src/planted/near/"], ["src/planted/near/", "src/planted/nearer/"]):
        drawn = draw(packages, tree, seed=1, count=100, below=folders)
        assert drawn == [m for m in every if not folders or m.file.startswith(tuple(folders))]
        assert drawn
    listed = [sys.executable, "-m", "tools.mutants", f"--root={tree}", f"--packages={tree / 'packages'}", "--list"]
    near = subprocess.run([*listed, "--from=src/planted/near"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert near.returncode == 0
    assert near.stdout.count("src/planted/near/queue.py:") == near.stdout.count("src/planted") > 0
    none = subprocess.run([*listed, "--from=src/planted/ne"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (none.returncode, none.stdout.strip()) == (2, "nothing is drawn from src/planted/ne")


def test_changes_are_of_four_kinds_and_leave_texts_and_checks_alone() -> None:
    source = '''
def take(self, items):
    """If a > b."""
    _log.info("%d", len(items) + 1)
    invariant(len(items) > 1, "few")
    if isinstance(items, list) and self.is_open:
        self.note(
            items[1 :],
        )
    else:
        raise ValueError(f"{len(items) - 1}")
    return [i for i in items if i < self.end - 1]
'''
    found = [(m.operation, m.before, m.after) for m in changes_of("p", "src/p.py", source)]
    assert found == [
        (
            "swapped branch",
            "if isinstance(items, list) and self.is_open:",
            "if not (isinstance(items, list) and self.is_open):",
        ),
        ("dropped call", "self.note(", "pass"),
        *(
            (operation, "return [i for i in items if i < self.end - 1]", f"return [i for i in items if {changed}]")
            for operation, changed in (
                ("comparison flipped", "i >= self.end - 1"),
                ("off by one", "i <= self.end - 1"),
                ("off by one", "i < self.end - 2"),
            )
        ),
    ]
    for mutant in changes_of("p", "src/p.py", source):
        assert mutant.source.count("\n") == source.count("\n")


@pytest.fixture(scope="module")
def packages_of_the_product() -> list[Package]:
    return load_packages(ROOT)


def test_package_files_of_the_product_can_be_read(packages_of_the_product: list[Package]) -> None:
    assert sum(len(package.mutants) for package in packages_of_the_product) >= 50


def test_tests_named_after_a_drawn_module_are_among_those_of_its_package(
    packages_of_the_product: list[Package],
) -> None:
    """Else changes of the module survive though a test is there."""
    named = {path.stem: [] for path in (ROOT / "tests").rglob("test_*.py")}
    for kind in ("unit", "property", "contract"):
        for path in sorted((ROOT / "tests" / kind).rglob("test_*.py")):
            named[path.stem].append(path)
    forgotten = []
    for package in packages_of_the_product:
        known = tuple(ROOT / test for test in (*package.tests, *package.without))
        for file in package.drawn_files(ROOT):
            module = Path(file).stem
            of_module = [*named.get(f"test_{module}", ()), *named.get(f"test_{module}_properties", ())]
            for path in of_module:
                is_known = any(path == one or one in path.parents for one in known)
                if not is_known and f"from {qualified_module(file)} import" in path.read_text(encoding="utf-8"):
                    forgotten.append(f"{package.name}: {path.relative_to(ROOT)}, of {file}")
    assert not forgotten, forgotten
