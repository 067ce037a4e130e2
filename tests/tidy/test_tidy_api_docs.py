"""Every public name says what it is, its units and its errors, and has its place on a page of docs/api."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module

import pytest
from tools import generate_api_docs
from tools.api_names import MODULES, Member, Name, home_of, public_names, source_of
from tools.api_rules import EXCUSED, bare, homes, leaks, silent_waits, without_errors, without_unit

import geminga.client
from support.house.source_tree import ROOT


@cache
def names() -> list[Name]:
    """All of them, parsed when the first test asks: not by every worker that collects this file."""
    return [name for module in MODULES for name in public_names(module)]


def test_every_public_name_is_documented() -> None:
    assert not (found := [line for name in names() for line in bare(name)]), "\n".join(found)


def test_every_quantity_has_a_unit() -> None:
    assert not (found := [line for name in names() for line in without_unit(name)]), "\n".join(found)


def test_every_error_that_is_raised_is_told() -> None:
    assert not (found := [line for name in names() for line in without_errors(name)]), "\n".join(found)


def test_every_coroutine_says_what_it_raises() -> None:
    assert not (found := [line for name in names() for line in silent_waits(name)]), "\n".join(found)


def test_public_signatures_speak_of_public_types() -> None:
    assert not (found := list(leaks(names(), homes(names())))), "\n".join(found)


def test_what_is_excused_is_there() -> None:
    there = {f"{name.module}.{name.name}" for name in names()}
    there |= {f"{name.module}.{name.name}.{member.name}" for name in names() for member in name.members}
    assert set(EXCUSED) <= there


@pytest.mark.parametrize("module", MODULES)
def test_the_page_has_what_the_module_exports(module: str) -> None:
    """What importing it gives, not what the source seems to say; and all that has a heading is there."""
    page = (ROOT / "docs" / "api" / f"{module}.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    loaded = import_module(module)
    exported = getattr(loaded, "__all__", None) or [
        name for name in source_of(module).definitions if not name.startswith("_")
    ]
    assert {name for name in exported if not name.startswith("_")} <= headings
    if not module.startswith("geminga.spark"):  # whose names ask for Java
        assert [name for name in exported if not hasattr(loaded, name)] == []


def test_the_three_lists_of_the_clients_names_are_one() -> None:
    """Names for type checkers, for ``__all__`` (which these read as it stands) and for the first use of each."""
    source = source_of("geminga.client")
    assert sorted([*geminga.client._MODULE_OF, "connect"]) == sorted(geminga.client.__all__)
    typed = {name for name, (module, _) in source.imports.items() if name in geminga.client.__all__}
    assert typed == set(geminga.client._MODULE_OF)
    assert [name for name in typed if source.imports[name][0] != geminga.client._MODULE_OF[name]] == []


def test_the_pages_are_those_of_the_modules() -> None:
    assert {path.name for path in (ROOT / "docs" / "api").glob("*.md")} == {
        "README.md",
        *(generate_api_docs.file_of(module) for module in MODULES),
    }
    assert all(module.split(".")[-1].isidentifier() and source_of(module).doc for module in MODULES)


def made(text: str, doc: str = "") -> Name:
    """A public function, as planted."""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return Name("f", "geminga.client", "function", text, doc, node, "geminga.client")


def test_what_is_not_said_is_caught() -> None:
    plain = made("def f(): ...")
    assert list(bare(plain)) == ["geminga.client.f has no docstring"]
    timed = "def f(timeout: float, size_bytes: int, name: str): ..."
    assert list(without_unit(made(timed, "Waits."))) == ["geminga.client.f: timeout has no unit"]
    assert list(without_unit(made(timed, "Waits ``timeout``, at most."))) != []
    assert list(without_unit(made(timed, "``timeout``: seconds."))) == []
    raising = "def f(x):\n    check_argument(x)\n    raise Timeout('late')"
    assert list(without_errors(made(raising, "Does it."))) == [
        "geminga.client.f: raises InvalidConfiguration and does not say so",
        "geminga.client.f: raises Timeout and does not say so",
    ]
    assert list(without_errors(made(raising, "Raises Timeout and InvalidConfiguration."))) == []
    waiting = ast.parse("async def f(): ...").body[0]
    assert list(silent_waits(Name("f", "m", "function", "", "Waits.", waiting, "m"))) == [
        "m.f: waits and does not say what it raises"
    ]
    assert list(silent_waits(Name("f", "m", "function", "", "Waits; raises Timeout.", waiting, "m"))) == []
    inner = "def f(x):\n    def g():\n        raise Timeout('late')\n    return g"
    assert list(without_errors(made(inner, "A function."))) == []


def test_a_method_and_a_type_are_looked_at_too() -> None:
    node = ast.parse("def wait(self, lock_timeout: int) -> Cluster: raise Timeout()").body[0]
    assert isinstance(node, ast.FunctionDef)
    member = Member("wait", "method", "def wait()", "", node)
    source, name = home_of("geminga.client", "Client") or pytest.fail("no client")
    owner = Name(
        "Client", "geminga.client", "class", "", "A client.", source.definitions[name], source.module, (member,)
    )
    where = "geminga.client.Client.wait"
    assert list(bare(owner)) == [f"{where} has no docstring"]
    assert list(without_unit(owner)) == [f"{where}: lock_timeout has no unit"]
    assert list(without_errors(owner)) == [f"{where}: raises Timeout and does not say so"]
    assert [line.partition(" speaks of ")[0] for line in leaks([owner], frozenset())] == [where]


def test_docstrings_become_markdown() -> None:
    code = "Takes ``x``; see :meth:`Client.send`::\n\n    await f(x)\n\nThen::\n\n    a   b"
    table = "===  ===\nk    v\n===  ===\n"
    assert generate_api_docs.markdown(f"{code}\n\n{table}") == (
        "Takes `x`; see `Client.send`:\n\n```python\nawait f(x)\n```\n\nThen:\n\n```text\na   b\n```\n\n"
        "```text\nk    v\n```"
    )


def test_long_signatures_have_a_parameter_on_each_line() -> None:
    short = "def f(a: int) -> str"
    assert generate_api_docs.wrapped(short) == short
    long = f"def f(a: dict[int, str], {'b' * 90}: int = 3) -> str"
    assert generate_api_docs.wrapped(long) == f"def f(\n    a: dict[int, str],\n    {'b' * 90}: int = 3,\n) -> str"


def test_a_page_that_is_stale_is_caught(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(generate_api_docs, "PAGES", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate_api_docs"])
    assert generate_api_docs.main() == 0
    page = tmp_path / "geminga.failover.md"
    page.write_text("of a module that is gone", encoding="utf-8")
    (tmp_path / "geminga.md").write_text("something else", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["generate_api_docs", "--check"])
    assert generate_api_docs.main() == 1
    assert "geminga.failover.md, geminga.md not as the docstrings say" in capsys.readouterr().err
