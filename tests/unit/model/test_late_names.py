"""Names that are loaded with their first use, and the packages that have such."""

from __future__ import annotations

import importlib

import pytest

from geminga.model.late_names import late_names

PACKAGES = (
    "geminga.admin",
    "geminga.admin.blocking",
    "geminga.bookkeeper",
    "geminga.managed_ledger",
    "geminga.metadata",
    "geminga.runtime",
)


def test_name_is_that_of_its_module_and_no_other_is_there() -> None:
    found = late_names("a.package", {"Secret": "geminga.model.secret"})
    assert found("Secret") is importlib.import_module("geminga.model.secret").Secret
    with pytest.raises(AttributeError, match=r"^module 'a\.package' has no attribute 'DOTS'$"):
        found("DOTS")


@pytest.mark.parametrize("name", PACKAGES)
def test_package_has_all_that_it_exports(name: str) -> None:
    package = importlib.import_module(name)
    assert [each for each in package.__all__ if not hasattr(package, each)] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing
