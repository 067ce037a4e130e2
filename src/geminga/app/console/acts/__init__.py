"""Acts, by subject; each module has its rows in ``ACTS``."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from geminga.app.console.tables import Act

__all__ = ["SUBJECTS", "all_acts"]

#: Modules here.
SUBJECTS: Final = ("namespaces", "topics", "subscriptions", "messages", "schemas", "permissions", "compaction")


def all_acts() -> dict[str, Act]:
    """Every row, by its name."""
    return {act.name: act for subject in SUBJECTS for act in import_module(f"{__name__}.{subject}").ACTS}
