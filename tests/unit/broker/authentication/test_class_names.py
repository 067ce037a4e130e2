"""Class names of providers, as an operator's file has them."""

from __future__ import annotations

import pytest

from geminga.broker.authentication.class_names import KINDS, UNBUILT, ProviderKind, kinds_of
from geminga.model.errors import ConfigurationError


def test_names_are_pulsars_and_each_counts_once() -> None:
    assert kinds_of(KINDS) == list(ProviderKind)
    assert kinds_of([*KINDS, *KINDS]) == list(ProviderKind)
    assert kinds_of([]) == []


@pytest.mark.parametrize("name", [*UNBUILT, "AuthenticationProviderToken", "com.acme.Own", ""])
def test_others_are_refused_by_name_with_what_there_is(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"authenticationProviders={name}: .*; expected org") as raised:
        kinds_of([next(iter(KINDS)), name])
    assert all(known in str(raised.value) for known in KINDS)
