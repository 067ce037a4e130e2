"""Each policy's path has a name to ask by."""

from __future__ import annotations

import pytest

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.access.core.policy_names import policy_name
from geminga.model.errors import InvariantError


def test_policy_is_asked_for_by_pulsars_name() -> None:
    assert policy_name("messageTTL") is PolicyName.TTL
    assert policy_name("property/{key}") is PolicyName.ALL


def test_policy_nobody_decided_about_is_refused() -> None:
    with pytest.raises(InvariantError, match="who may read and change the policy invented"):
        policy_name("invented")
