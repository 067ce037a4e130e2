"""What brokers tell each other of a resource group, and who is taken for gone."""

from __future__ import annotations

import pytest

from geminga.broker.core.group_shares import Use
from geminga.broker.groups.usage import (
    LOOKS_MAX,
    GroupReport,
    Watched,
    decode_reports,
    encode_reports,
)

REPORTS = {"a": GroupReport(3, {"publishRateInMsgs": Use(10, 4, False)}), "b": GroupReport(1, {})}


def test_reports_come_back_as_they_were():
    assert decode_reports(encode_reports(REPORTS)) == REPORTS


@pytest.mark.parametrize(
    "value",
    [None, 3, {"look": "x", "uses": {}}, {"look": 1, "uses": {"l": [1, 2]}}, {"look": 1, "uses": {"l": [-1, 2, True]}}],
)
def test_what_makes_no_sense_is_left_out(value):
    told = encode_reports(REPORTS)
    told["brokers"]["x"] = value
    assert decode_reports(told) == REPORTS
    assert decode_reports(None) == decode_reports({"brokers": 3}) == {}


def test_who_looks_no_more_is_gone():
    watched = Watched()
    for look in range(LOOKS_MAX):
        reports = {"a": GroupReport(look, {}), "b": REPORTS["b"]}
        watched.looked(reports)
        assert watched.present(reports) == reports
    reports = {"a": GroupReport(9, {}), "b": REPORTS["b"]}
    watched.looked(reports)
    assert set(watched.present(reports)) == {"a"}
    # It was slow, and is there again.
    back = {**reports, "b": GroupReport(2, {})}
    watched.looked(back)
    assert watched.present(back) == back
