"""Each setting of Pulsar 4.2.4's broker is built, means nothing here for a reason, or is named where it asks for it."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

from geminga.app.configuration.config import load_config
from geminga.app.configuration.core.unbuilt_keys import GROUPS, asked_in_vain
from geminga.app.configuration.known_keys import KNOWN_KEYS, KNOWN_PREFIXES

ROOT = Path(__file__).parents[2]
#: Name -> default, of every field of Apache's ``ServiceConfiguration``.
FIELDS: dict[str, str] = json.loads((ROOT / "tests/samples/service-configuration-4.2.4.json").read_text("utf-8"))


def built() -> set[str]:
    """Keys that some configuration of ours has a field for."""
    found = set()
    for path in (ROOT / "src" / "geminga").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "setting" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "setting" in node.func.id:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    return found


def without_meaning() -> list[str]:
    """Keys that the page of configuration gives a reason for."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = page.partition("\n## Keys that mean nothing here\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert all(len(why.strip()) > 15 for _, why, _ in rows), "a row without a reason"
    return [key for *_, keys in rows for key in re.findall(r"`(\w+)`", keys)]


def test_every_field_is_in_one_place() -> None:
    assert len(FIELDS) == 569
    named = [key for group in GROUPS for key in group.keys]
    nothing = without_meaning()
    assert [key for key, count in Counter(nothing).items() if count > 1] == []
    assert set(nothing) & (built() | set(named)) == set(), "said to mean nothing, and built or named"
    assert FIELDS.keys() - built() - set(named) - set(nothing) == set(), "nobody says what becomes of it"
    assert set(nothing) - FIELDS.keys() == set(), "no setting of Pulsar's"


def test_none_is_unknown_and_none_is_named_at_its_default() -> None:
    assert [key for key in FIELDS if key not in KNOWN_KEYS and not key.startswith(KNOWN_PREFIXES)] == []
    found = {key: asked_in_vain(key, text) for key, text in FIELDS.items()}
    assert {key: group.what for key, group in found.items() if group is not None} == {}


def test_keys_without_meaning_are_passed_over_whatever_they_say() -> None:
    overrides = [f"{key}=7" for key in without_meaning()]
    assert load_config(overrides=overrides).warnings == ()


def test_classes_of_others_are_named_and_apaches_own_are_not() -> None:
    key = "dispatchRateLimiterFactoryClassName"
    own = "org.apache.pulsar.broker.service.persistent.DispatchRateLimiterFactoryClassic"
    assert load_config(overrides=[f"{key}={own}"]).warnings == ()
    assert asked_in_vain("schemaRegistryCompatibilityCheckers", f"{own},com.example.Other") is not None
    (warning,) = load_config(overrides=[f"{key}=com.example.Limiter"]).warnings
    assert warning.startswith(f"{key}=com.example.Limiter (--set) has no effect")
