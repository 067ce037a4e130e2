"""Who may do what, and from where."""

from __future__ import annotations

import pytest

from geminga.app.console.core.rights import (
    RightsError,
    RightsRow,
    actions_of,
    rights_rows,
    role_of,
    subscription_rows,
)


def test_each_right_says_where_it_comes_from() -> None:
    rows = rights_rows(
        {"app": ["produce"], "boss": ["consume"]},
        {"app": ["produce", "consume"], "boss": ["consume"], "new": ["sinks"]},
        tenant_admins=["boss"],
        superusers=["root"],
    )
    assert rows == [
        RightsRow("boss", ("", "namespace", "", "", "", ""), "administrator of the tenant"),
        RightsRow("root", ("", "", "", "", "", ""), "superuser"),
        RightsRow("app", ("namespace", "topic", "", "", "", ""), ""),
        RightsRow("new", ("", "", "", "", "topic", ""), ""),
    ]
    assert rows[2].actions == ("produce", "consume")
    assert (rows[2].actions_from("topic"), rows[2].actions_from("namespace")) == (("consume",), ("produce",))


def test_right_that_is_given_twice_says_both() -> None:
    [row] = rights_rows({"app": ["produce"]}, {"app": ["produce", "consume"]}, {"app": ["produce", "consume"]})
    assert row.origins == ("namespace and topic", "topic", "", "", "", "")
    assert (row.actions_from("topic"), row.actions_from("namespace")) == (("produce", "consume"), ("produce",))


def test_superuser_who_is_an_administrator_too_is_a_superuser() -> None:
    [row] = rights_rows({}, tenant_admins=["root"], superusers=["root"])
    assert row.standing == "superuser"


def test_actions_of_a_form_are_in_their_order_or_refused() -> None:
    assert actions_of(["consume", "produce", "consume"]) == ["produce", "consume"]
    with pytest.raises(RightsError, match="'delete' is no action: expected produce, consume"):
        actions_of(["delete"])
    with pytest.raises(RightsError, match="No action was chosen"):
        actions_of([])


def test_role_of_a_form_is_a_name_or_refused() -> None:
    assert role_of(" app ") == "app"
    with pytest.raises(RightsError, match="The role is missing"):
        role_of(" ")
    with pytest.raises(RightsError, match="257 characters"):
        role_of("x" * 257)


def test_subscriptions_are_sorted_with_their_roles() -> None:
    assert subscription_rows({"b": ["y", "x"], "a": None}) == [("a", []), ("b", ["x", "y"])]
