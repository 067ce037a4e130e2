"""What is refused because it is not built, as data."""

from __future__ import annotations

import re

import pytest

from geminga.broker.core.coercion import BodyError, Json, NotBuiltError
from geminga.broker.policies.core.row import PolicyRow
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.rest.calls.core import unbuilt
from geminga.broker.rest.calls.core.unbuilt import (
    NAMESPACE_FIELDS,
    ROUTES,
    refuse_unbuilt,
)
from geminga.model.errors import PreconditionFailedError


def test_no_path_is_named_twice() -> None:
    shapes = [(method, re.sub(r"\{[^}]*\}", "{}", row.path)) for row in ROUTES for method in row.methods]
    assert len(shapes) == len(set(shapes))
    assert len(shapes) > 120


def test_error_is_501_and_says_what_is_missing() -> None:
    assert NotBuiltError.http_status == 501
    assert str(NotBuiltError("compaction")) == "compaction: not built"


#: Members of documents -> values that mean "not set", that set something, and that can be none.
VALUES: dict[str, tuple[list[Json], list[Json], list[Json]]] = {
    "subscription_auth_mode": (["None"], ["Prefix"], ["none", 5, []]),
}


@pytest.mark.parametrize("field", [*NAMESPACE_FIELDS], ids=lambda field: field.key)
def test_field_is_refused_when_it_is_set_and_taken_when_it_is_not(field: unbuilt.UnbuiltField) -> None:
    unset, values, wrong = VALUES[field.key]
    for value in (None, *unset):
        refuse_unbuilt({field.key: value, "other": 1}, [field])
    for value in values:
        with pytest.raises(NotBuiltError, match=re.escape(f"{field.key} ({field.what})")):
            refuse_unbuilt({field.key: value}, [field])
    for value in wrong:
        with pytest.raises((BodyError, PreconditionFailedError)):
            refuse_unbuilt({field.key: value}, [field])


@pytest.mark.parametrize("row", [row for row in ROWS if row.unbuilt], ids=lambda row: row.name)
def test_what_a_policy_that_is_not_built_takes_sets_nothing(row: PolicyRow[object]) -> None:
    """The same rule for each path that sets one: what its reader makes of it is what holds anyway."""
    unset = {"replicationClusters": [[], [""]]}
    level = row.namespace
    values = unset[row.name] if level is None else VALUES[level.key][0]
    for value in values:
        for one in (
            value.values() if level is not None and level.is_per_cluster and isinstance(value, dict) else [value]
        ):
            assert row.is_inert(row.check(one)), (row.name, one)
    assert row.is_inert(None)
