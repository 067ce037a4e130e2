"""Pages, by subject; each module has its rows in ``PAGES``."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from geminga.app.console.tables import Page

__all__ = ["SUBJECTS", "all_pages"]

#: Modules here, in the order of the navigation.
SUBJECTS: Final = (
    "start",
    "namespaces",
    "topics",
    "messages",
    "letters",
    "schemas",
    "permissions",
    "cluster",
)


def all_pages() -> list[Page]:
    """Every row."""
    return [page for subject in SUBJECTS for page in import_module(f"{__name__}.{subject}").PAGES]
