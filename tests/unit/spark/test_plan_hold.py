"""What the driver asks of the admin REST while it holds the plans' topic; the story is an integration test."""

from __future__ import annotations

import pytest

from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.sink import plan_hold
from support.processes.web_answers import DRIPPING, NO_ANSWERS, Dripping, RawAnswers

_CONFIGURATION = ClientConfiguration("pulsar://localhost:6650")


@pytest.mark.parametrize("begun", DRIPPING.values(), ids=DRIPPING)
def test_an_answer_that_comes_byte_by_byte_does_not_hold_the_driver_for_ever(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_hold, "_TIMEOUT_S", 0.2)
    with Dripping(begun) as web, pytest.raises(plan_hold.AdminError, match=r"GET .*topics/x"):
        plan_hold.Admin(web.url, _CONFIGURATION).request("GET", "topics/x")


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_is_told_as_an_error_of_the_administration(answer: bytes) -> None:
    with RawAnswers(answer) as web, pytest.raises(plan_hold.AdminError, match=r"GET .*topics/x: .+"):
        plan_hold.Admin(web.url, _CONFIGURATION).request("GET", "topics/x")
