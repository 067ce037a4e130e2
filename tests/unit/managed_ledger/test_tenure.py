"""Whether a log is this owner's to write: until it is closed, or another owner is found to have it."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.log.tenure import Tenure
from geminga.model.errors import LedgerClosedError, LedgerFencedError


def test_log_that_was_just_opened_can_be_written():
    tenure = Tenure("log")
    tenure.check_writable()
    assert (tenure.refusal(), tenure.is_over) == (None, False)


def test_closed_log_refuses_and_says_its_name():
    tenure = Tenure("log")
    tenure.is_closed = True
    with pytest.raises(LedgerClosedError, match="log is closed"):
        tenure.check_writable()
    assert tenure.is_over


def test_lost_log_is_lost_once_and_tells_once():
    tenure = Tenure("log")
    told = []
    tenure.when_fenced = lambda: told.append(tenure.is_fenced)
    for _ in range(2):
        if tenure.lose(LedgerFencedError("version 3 expected")):
            tenure.tell_lost()
    assert told == [True]
    assert tenure.is_over
    with pytest.raises(LedgerFencedError, match="log has another owner"):
        tenure.check_writable()


def test_log_that_was_lost_and_then_closed_says_that_it_has_another_owner():
    """Who asks is to go to the other one, rather than to try here again."""
    tenure = Tenure("log")
    assert tenure.lose(LedgerFencedError("version 3 expected"))
    tenure.tell_lost()
    tenure.is_closed = True
    assert isinstance(tenure.refusal(), LedgerFencedError)
