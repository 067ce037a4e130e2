"""Which entry filters a request may name."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.policies.core.delivery_rows import DEDUPLICATION, ENTRY_FILTERS
from geminga.broker.rest.calls.filter_names import check_filters_known


def test_only_filters_that_are_there_are_taken(tmp_path):
    (tmp_path / "mine.py").write_text("raise AssertionError('imported')\n")
    check_filters_known(ENTRY_FILTERS, {"entryFilterNames": "mine:f, mine:g"}, str(tmp_path))
    with pytest.raises(BodyError, match="Entry filter 'other' not found"):
        check_filters_known(ENTRY_FILTERS, {"entryFilterNames": "mine:f,other"}, str(tmp_path))
    with pytest.raises(BodyError, match="Entry filter 'mine:f' not found"):
        check_filters_known(ENTRY_FILTERS, {"entryFilterNames": "mine:f"}, "")


def test_of_other_policies_and_of_none_nothing_is_asked():
    check_filters_known(DEDUPLICATION, True, "")
    check_filters_known(ENTRY_FILTERS, None, "")
