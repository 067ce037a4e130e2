"""``docs/budgets.md``: every limit that it names is there, and is what the page says."""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple

import pytest

from support.house.source_tree import ROOT

PAGE = ROOT / "docs" / "budgets.md"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "s": 1, "ms": 1}
#: Who has rows of bytes, and of deadlines.
WHO = {"Broker", "REST", "Bookie", "Socket of `--brokers`", "Ledger client", "ZooKeeper session"}
WHO |= {"Calls of other brokers", "Lake", "Our client"}


#: With rows of limits; others have other tables.
SECTIONS = ("Bytes and counts", "Deadlines")


class Row(NamedTuple):
    section: str
    what: str
    limit: str
    name: str


def rows() -> list[Row]:
    found, section = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        if section in SECTIONS and line.startswith("| ") and not line.startswith("| What |"):
            what, limit, name, _ = (cell.strip() for cell in line.strip().strip("|").split("|"))
            found.append(Row(section, what, limit, name.strip("`")))
    return found


def of_settings() -> dict[str, str]:
    """The default of each setting, as it stands in the source."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "geminga").rglob("*config*.py")]
    return {key: value for text in sources for key, value in re.findall(r'setting\(\s*"(\w+)",\s*([^,]+),', text)}


def value_of(name: str) -> float:
    """Of a constant, or of the default of an option's field."""
    module, _, attribute = f"geminga.{name}".rpartition(".")
    try:
        owner: object = import_module(module)
    except ModuleNotFoundError:
        module, _, owner_name = module.rpartition(".")
        owner = getattr(import_module(module), owner_name)
        fields = getattr(owner, "__dataclass_fields__", None)
        if fields is not None:
            return fields[attribute].default
    return getattr(owner, attribute)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_limit_is_there_and_as_the_page_says(row: Row) -> None:
    number, _, unit = row.limit.partition(" ")
    said = float(number) * UNITS[unit]
    if "." in row.name:
        assert value_of(row.name) == said
        return
    settings = of_settings()
    assert row.name in settings, f"{row.name} is no setting"
    default = float(settings[row.name].replace("_", ""))
    if not row.name.endswith(("InMB", "Mb")):
        assert default == said
    else:
        assert default * (1 << 20) == said


def test_everybody_has_bytes_and_deadlines() -> None:
    for section in SECTIONS:
        said = {match for row in rows() if row.section == section for match in re.findall(r"\*\*(.+?):?\*\*", row.what)}
        assert said >= WHO, f"{section}: {WHO - said}"
