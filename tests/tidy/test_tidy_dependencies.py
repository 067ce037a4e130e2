"""What is installed, what is imported, and what docs/dependencies.md says of it, are the same."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from support.source_tree import ROOT, SourceModule, imports_of, product_modules

#: Distribution -> the module it brings, where the names differ.
MODULES = {"google-re2": "re2", "protobuf": "google"}
#: Where what an extra brings may be imported: those who load it only if it is wanted.
EXTRAS_OF = {
    "geminga.app.event_loop": {"fast"},
    "geminga.pytest_plugin": {"test"},
    "geminga.spark": {"spark"},
    "geminga.lake": {"lake"},
    "pyspark_geminga": {"spark"},
}


def project() -> dict[str, set[str]]:
    """Extra -> names of its distributions; empty: what everybody gets."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = {"": stated["dependencies"], **stated["optional-dependencies"]}
    return {
        extra: {re.split(r"[<>=!~;\[ ]", line)[0] for line in lines} - {"geminga"} for extra, lines in lists.items()
    }


def tables(text: str) -> dict[str, set[str]]:
    """Heading -> the packages of its table's rows."""
    found: dict[str, set[str]] = {}
    for part in text.split("\n## ")[1:]:
        heading, _, rows = part.partition("\n")
        found[heading] = {
            name
            for row in rows.splitlines()
            if row.startswith("| ")
            for name in re.findall(r"`([\w-]+)`", row.split("|")[1].partition("(extra")[0])
        }
    return found


def undeclared(module: SourceModule, extras: dict[str, set[str]]) -> list[str]:
    """Third-party modules that are imported and not declared for this place."""
    allowed = set(extras[""])
    for place, names in EXTRAS_OF.items():
        if module.name == place or module.name.startswith(f"{place}."):
            allowed |= {name for extra in names for name in extras[extra]}
    known = {MODULES.get(name, name.replace("-", "_")) for name in allowed} | sys.stdlib_module_names | {"geminga"}
    return [
        f"{module.name}:{imported.line} imports {imported.target}, which pyproject.toml does not declare"
        for imported in imports_of(module)
        if imported.target.partition(".")[0] not in known and imported.target != "_typeshed"
    ]


def test_what_the_product_imports_is_declared() -> None:
    found = [line for module in product_modules() for line in undeclared(module, project())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("geminga.broker.x", "import requests"),
        ("geminga.broker.x", "def f():\n    import pyarrow as pa"),
        ("geminga.client.x", "from uvloop import new_event_loop"),
    ],
)
def test_an_import_that_is_not_declared_is_caught(name: str, text: str) -> None:
    assert undeclared(SourceModule(name, text), project()) != []
    assert undeclared(SourceModule("geminga.spark.x", "import pyarrow"), project()) == []


def test_everything_declared_is_imported_or_says_in_the_docs_why_not() -> None:
    imported = {i.target.partition(".")[0] for module in product_modules() for i in imports_of(module)}
    idle = {
        name
        for extra in ("", "avro", "fast", "spark")
        for name in project()[extra]
        if MODULES.get(name, name.replace("-", "_")) not in imported
    }
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in idle if not re.search(rf"`{name}`[^\n]*nothing under `src` imports it", text)] == []


def test_the_page_has_a_row_for_each_and_the_lock_a_version() -> None:
    rows = tables((ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8"))
    extras = project()
    to_run = set().union(*(extras[extra] for extra in ("", "avro", "fast", "spark")))
    assert rows["To run"] == to_run
    assert rows["To test and develop"] == extras["test"] | extras["dev"]
    everything = to_run | extras["test"] | extras["dev"]
    assert not rows["Looked at and left out"] & everything
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert everything <= locked


def test_a_package_of_an_extra_says_so() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    extras = project()
    for extra in ("fast", "spark"):
        for name in extras[extra]:
            assert f"| `{name}` (extra `{extra}`) |" in text, name
