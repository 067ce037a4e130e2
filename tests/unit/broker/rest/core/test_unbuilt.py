"""What is refused because it is not built, as data."""

from __future__ import annotations

import re

import pytest

from geminga.broker.core.coercion import NotBuiltError
from geminga.broker.rest.core import unbuilt
from geminga.broker.rest.core.unbuilt import (
    NAMESPACE_FIELDS,
    PARAMETERS,
    ROUTES,
    refuse_parameter,
    refuse_replication,
    refuse_unbuilt,
)


def test_no_path_is_named_twice() -> None:
    shapes = [(method, re.sub(r"\{[^}]*\}", "{}", row.path)) for row in ROUTES for method in row.methods]
    assert len(shapes) == len(set(shapes))
    assert len(shapes) > 150


def test_error_is_501_and_says_what_is_missing() -> None:
    assert NotBuiltError.http_status == 501
    assert str(NotBuiltError("compaction")) == "compaction: not built"


@pytest.mark.parametrize("field", NAMESPACE_FIELDS, ids=lambda field: field.key)
def test_field_is_refused_when_it_is_set_and_taken_when_it_is_not(field: unbuilt.UnbuiltField) -> None:
    for unset in (None, *field.unset):
        refuse_unbuilt({field.key: unset, "other": 1}, NAMESPACE_FIELDS)
    # Numbers and booleans that Python takes for the same are not.
    equal = [int(value) if isinstance(value, bool) else float(str(value)) for value in field.unset if value in (0, -1)]
    for value in (True, 1, "x", {"standalone": {}}, ["a"], *equal):
        with pytest.raises(NotBuiltError, match=re.escape(f"{field.key} ({field.what})")):
            refuse_unbuilt({field.key: value}, NAMESPACE_FIELDS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_is_refused_when_it_is_true(name: str) -> None:
    refuse_parameter({}, name)
    refuse_parameter({name: "false"}, name)
    for text in ("true", "TRUE"):
        with pytest.raises(NotBuiltError, match=name):
            refuse_parameter({name: text}, name)


@pytest.mark.parametrize("key", ["replication_clusters", "allowed_clusters"])
def test_namespace_lives_in_this_cluster_only(key: str) -> None:
    for clusters in (["here"], [], None):
        refuse_replication({key: clusters}, "here", ["here", "there"])
    # Refused for another reason: its tenant may not use it.
    refuse_replication({key: ["here", "nowhere"]}, "here", ["here", "there"])
    for clusters in (["here", "there"], ["there"]):
        with pytest.raises(NotBuiltError, match="geo-replication"):
            refuse_replication({key: clusters}, "here", ["here", "there"])
