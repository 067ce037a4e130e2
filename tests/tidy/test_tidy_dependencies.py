"""What is installed, what is imported, and what docs/dependencies.md says of it, are the same."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest
from tools.package_check import EXTRAS_WITH_INSIDES, INSIDES, TEST_PACKAGES

from support.house.source_tree import ROOT, SourceModule, imports_of, product_modules

#: Distribution -> the module it brings, where the names differ.
MODULES = {
    "google-re2": "re2",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "protobuf": "google",
    "pure-sasl": "puresasl",
    "PyYAML": "yaml",
}
#: Where what an extra brings may be imported: those who load it only if it is wanted.
EXTRAS_OF = {
    "geminga.app": {"cli", "server"},
    "geminga.app.configuration.zookeeper_client": {"sasl"},
    "geminga.app.lifecycle.event_loop": {"fast"},
    "geminga.app.servers.telemetry": {"otel"},
    "geminga.bookie": {"server"},
    "geminga.broker": {"server"},
    "geminga.client.schema": {"avro"},
    "geminga.lake": {"lake"},
    "geminga.managed_ledger": {"server"},
    "geminga.metadata.zookeeper": {"zookeeper"},
    "geminga.proxy": {"server"},
    "geminga.pytest_plugin": {"test"},
    "geminga.security": {"crypto"},
    "geminga.runtime.tls.material": {"crypto"},
    "geminga.spark": {"spark"},
    "geminga.wire.pulsar.ecies": {"crypto"},
    "geminga.wire.pulsar.encryption": {"crypto"},
    "pyspark_geminga": {"spark"},
}
#: What users may ask for; empty: what everybody gets.
TO_RUN = ("", "avro", "cli", "crypto", "fast", "lake", "otel", "sasl", "server", "spark", "zookeeper")


def project() -> dict[str, set[str]]:
    """Extra -> names of its distributions, those of extras that it names included; empty: what everybody gets."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = {"": stated["dependencies"], **stated["optional-dependencies"]}

    def names(extra: str) -> set[str]:
        found: set[str] = set()
        for line in lists[extra]:
            if own := re.match(r"geminga\[(.*)\]", line):
                found |= set().union(*(names(other) for other in own[1].split(",")))
            else:
                found.add(re.split(r"[<>=!~;\[ ]", line)[0])
        return found

    return {extra: names(extra) for extra in lists}


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


def every_module() -> dict[str, SourceModule]:
    """Every module of the tests and of the product, by name."""
    found = {module.name: module for module in product_modules()}
    for path in (ROOT / "tests").rglob("*.py"):
        parts = path.relative_to(ROOT / "tests").with_suffix("").parts
        is_init = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_init else parts)
        found[name] = SourceModule(name, path.read_text(encoding="utf-8"), is_init)
    return found


def loaded_by(names: set[str], modules: dict[str, SourceModule]) -> dict[str, str]:
    """What importing these modules imports of others: its first name, and one of the modules that do."""
    known = frozenset(modules)
    seen, waiting, others = set(names), [*names], {}
    while waiting:
        name = waiting.pop()
        for imported in imports_of(modules[name], known):
            target = imported.target
            if imported.is_deferred:
                continue
            parts = target.split(".")
            ours = {".".join(parts[:count]) for count in range(1, len(parts) + 1)} & known
            if not ours:
                others.setdefault(parts[0], name)
            waiting += ours - seen
            seen |= ours
    return others


def test_what_the_tests_of_insides_import_is_there_in_the_environments_of_make_package() -> None:
    modules = every_module()
    left_out = {each.removeprefix("--ignore=") for each in INSIDES if each.startswith("--ignore=")}
    files = {
        path.relative_to(ROOT)
        for each in INSIDES
        if not each.startswith("--")
        for path in ((ROOT / each).rglob("*.py") if (ROOT / each).is_dir() else [ROOT / each])
    }
    chosen = {".".join(path.with_suffix("").parts[1:]) for path in files if path.as_posix() not in left_out}
    extras = project()
    there = {re.split(r"\W", name.replace("-", "_"))[0] for name in TEST_PACKAGES}
    there |= {MODULES.get(name, name.replace("-", "_")) for each in ("", *EXTRAS_WITH_INSIDES) for name in extras[each]}
    # The official client is a module of another name, and PySpark's is lent.
    there |= {"pulsar", "_pulsar", "pyspark", "tools", "starlette", "typer", "geminga"} | sys.stdlib_module_names
    found = loaded_by(chosen & set(modules), modules)
    assert {name: by for name, by in found.items() if name not in there} == {}


def test_what_the_product_imports_is_declared() -> None:
    extras = project()
    found = [line for module in product_modules() for line in undeclared(module, extras)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("geminga.broker.x", "import requests"),
        ("geminga.broker.x", "def f():\n    import pyarrow as pa"),
        ("geminga.client.x", "from pyroaring import BitMap"),
        ("geminga.wire.x", "def f():\n    import cryptography"),
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
        for extra in TO_RUN
        for name in project()[extra]
        if MODULES.get(name, name.replace("-", "_")) not in imported
    }
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in idle if not re.search(rf"`{name}`[^\n]*nothing under `src` imports it", text)] == []


def test_the_page_has_a_row_for_each_and_the_lock_a_version() -> None:
    rows = tables((ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8"))
    extras = project()
    to_run = set().union(*(extras[extra] for extra in TO_RUN))
    assert extras["all"] == to_run - extras[""]
    assert rows["To run"] == to_run
    assert rows["To test and develop"] == (extras["test"] | extras["dev"]) - to_run
    everything = to_run | extras["test"] | extras["dev"]
    assert not rows["Looked at and left out"] & everything
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert {name.lower() for name in everything} <= locked


def test_a_package_of_an_extra_says_so() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    extras = project()
    own = {
        "avro": extras["avro"],
        "cli": extras["cli"],
        "crypto": extras["crypto"],
        "fast": extras["fast"],
        "server": extras["server"] - extras["avro"] - extras["cli"],
        "spark": extras["spark"] - extras["avro"] - extras["cli"],
        "zookeeper": extras["zookeeper"] - extras["server"],
    }
    for extra, names in own.items():
        for name in names:
            assert f"| `{name}` (extra `{extra}`) |" in text, name
    for name in extras[""]:
        assert f"| `{name}` |" in text, name


def test_no_version_of_what_the_product_needs_is_the_only_one() -> None:
    """Exact versions would keep Geminga out of environments that others are in, too."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *stated["dependencies"],
        *(line for extra in TO_RUN[1:] for line in stated["optional-dependencies"][extra]),
    ]
    assert not [line for line in lines if "==" in line]
