"""Policies of a namespace as people read them: what is set, each with its words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: What a namespace has without anybody having set it, and what other pages show.
_LEFT_OUT: Final = frozenset({"auth_policies", "bundles", "deleted", "latency_stats_sample_rate"})
#: Switches that every namespace has: what they are until somebody turns them. Others are absent then.
_STANDING: Final = {
    "encryption_required": False,
    "is_allow_auto_update_schema": True,
    "migrated": False,
    "schema_validation_enforced": False,
}
_UNSET: Final[tuple[object, ...]] = (None, {}, [], "", "UNDEFINED", "None")
_UNITS: Final = (
    (re.compile(r"InMB$|_in_mb$"), "MB"),
    (re.compile(r"InMinutes$|_in_minutes$"), "min"),
    (re.compile(r"InMillis(econds)?$|_in_millis$"), "ms"),
    (re.compile(r"InSeconds$|_in_seconds$|InSecond$|_in_second$"), "s"),
)


class SetPolicy(NamedTuple):
    """One that is set."""

    name: str
    value: str


def policy_rows(policies: Mapping[str, Any]) -> list[SetPolicy]:
    """Those that somebody set, by name."""
    rows = []
    for name, value in policies.items():
        if name in _LEFT_OUT or value in _UNSET or (value == -1 and "threshold" in name):
            continue
        if isinstance(value, bool) and _STANDING.get(name) is value:
            continue
        rows.append(SetPolicy(words_of(name), value_text(value)))
    return sorted(rows)


def words_of(name: str) -> str:
    """``retention_policies`` and ``publishMaxMessageRate`` as words."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ")
    text = " ".join(spaced.lower().split())
    return text[:1].upper() + text[1:]


def value_text(value: Any) -> str:  # noqa: ANN401  (a document of REST)
    """``a 1, b 2`` for what has parts."""
    if isinstance(value, Mapping):
        return "; ".join(_named(name, one) for name, one in value.items() if one not in _UNSET) or "nothing"
    if isinstance(value, list):
        return ", ".join(value_text(one) for one in value) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _named(name: str, value: Any) -> str:  # noqa: ANN401
    for ending, unit in _UNITS:
        if ending.search(name) and isinstance(value, int):
            known = {-1: "no limit"}.get(value, f"{value:,} {unit}")
            return f"{words_of(ending.sub('', name)).lower()} {known}"
    return f"{words_of(name).lower()} {value_text(value)}" if name else value_text(value)
