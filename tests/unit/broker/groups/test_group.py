"""One resource group on one broker."""

from __future__ import annotations

import pytest

from geminga.broker.core.rate_limit import Rate
from geminga.broker.groups.group import LEVEL, BrokerGroup, limits_of


@pytest.mark.parametrize(
    ("document", "limits"),
    [
        (None, {}),
        ({}, {}),
        ({"publishRateInMsgs": -1, "publishRateInBytes": 0, "dispatchRateInMsgs": "7"}, {}),
        (
            {"publishRateInMsgs": 5, "dispatchRateInBytes": 7, "replicationDispatchRateInMsgs": 9},
            {"publishRateInMsgs": 5, "dispatchRateInBytes": 7, "replicationDispatchRateInMsgs": 9},
        ),
    ],
)
def test_only_what_limits_something_is_a_limit(document, limits):
    assert limits_of(document) == limits


def test_throttles_are_those_of_the_shares_and_stay_while_the_kinds_do():
    group = BrokerGroup("g", lambda: 0.0, None)
    assert group.set_limits({"publishRateInMsgs": 50, "dispatchRateInBytes": 70}, is_alone=True)
    publish, dispatch, copying = group.throttles
    assert copying is None
    assert (publish.rate, dispatch.rate, dispatch.level) == (Rate(50, 0), Rate(0, 70), LEVEL)
    assert not group.set_limits({"publishRateInMsgs": 40, "dispatchRateInBytes": 60}, is_alone=True)
    assert group.throttles == (publish, dispatch, None)
    assert (publish.rate, dispatch.rate) == (Rate(40, 0), Rate(0, 60))
    assert group.set_limits({"publishRateInBytes": 9}, is_alone=True)
    assert group.throttles.dispatch is None
    assert group.throttles.publish.rate == Rate(0, 9)


def test_what_is_copied_is_held_counted_and_shared_by_itself():
    now = [0.0]
    group = BrokerGroup("g", lambda: now[0], None)
    group.set_limits({"replicationDispatchRateInMsgs": 10, "dispatchRateInMsgs": 50}, is_alone=True)
    assert (group.throttles.copying.rate, group.throttles.dispatch.rate) == (Rate(10, 0), Rate(50, 0))
    group.throttles.copying.take(1, 1, 400, 0)
    now[0] = 1.0
    used = group.used()
    assert (used["replicationDispatchRateInMsgs"].used, used["dispatchRateInMsgs"].used) == (1, 0)
    group.set_shares({"replicationDispatchRateInMsgs": 5, "dispatchRateInMsgs": 50})
    assert group.throttles.copying.rate == Rate(5, 0)


def test_use_is_per_second_since_the_look_before():
    now = [0.0]
    group = BrokerGroup("g", lambda: now[0], None)
    group.set_limits({"dispatchRateInMsgs": 1000, "dispatchRateInBytes": 10_000}, is_alone=True)
    group.throttles.dispatch.take(1, 40, 400, 0)
    now[0] = 4.0
    used = {name: use.used for name, use in group.used().items()}
    assert used == {"dispatchRateInMsgs": 10, "dispatchRateInBytes": 100}
    now[0] = 8.0
    assert {use.used for use in group.used().values()} == {0}
    assert group.totals()["dispatchRateInMsgs"] == 40
