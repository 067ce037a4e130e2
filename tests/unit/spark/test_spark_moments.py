"""Texts of JSON that pass for times, dates and decimals are those that Spark reads as such, as it was seen to."""

from __future__ import annotations

import zoneinfo

import pytest

from geminga.spark.decoding import spark_moments
from geminga.spark.decoding.json_gate import check_of
from geminga.spark.source_rules.ddl import parse_columns

AT = "2024-01-01 00:00:00"
#: What Spark's from_json gives null for, and says is corrupt.
UNREAD = {
    "timestamp": [
        *("2024-01-01T", "2024-01-01Z", "2024-01-01 12Z", "2024-01-01T12:30Z", "2024-01-01T12:30+01:00"),
        *(f"{AT}{zone}" for zone in ("z", "+99:99", "+18:01", "-18:00:01", "+17:60", "+01:2:3", "+01:02:3", "+123")),
        *(f"{AT}{zone}" for zone in ("+12345", "+01:0203", "UTC+19", "UTC+", "UTC+1:2:3")),
        *(f"{AT} {zone}" for zone in ("Mars/Phobos", "europe/berlin", "xyz", "A", "Factory", "ROC")),
        *("2024-02-30", "12345-13-45", "10000-02-30", "10001-02-29", "0000-02-30", "1234567-01-01", "294248-01-01"),
        *("294247-01-10T04:00:54.775808Z", "-290308-12-21T19:59:05.224191Z"),
        *("2024-01-01\u00a0", "\u20032024-01-01", "\u0662024-01-01"),
    ],
    "date": ["10000-02-30", "5881580-07-12", "-5877641-06-22", "9999999-01-01", "2024-01-01\u00a0", "\u0662024-01-01"],
    "decimal(6,2)": ["1_000", " 1", "1 ", "", ".", "1e", "--1", "\U0001d7cf", "0e99999999999"],
}
READ = {
    "timestamp": [
        *("2024", "2024-1", " 2024-1-1\t", "2024-01-01 ", "2024-01-01 1:2", "2024-01-01 1:2:3.", f"{AT}.1234560"),
        *(f"{AT}{zone}" for zone in ("Z", " Z", "+1", "+1:2", "+01:2", "+1:02:03", "+0102", "+010203", "+18")),
        *(f"{AT}{zone}" for zone in ("-18:00", "UTC", "GMT+1", "UT+1:2", "UTC+18:00", "GMT0", "PST", "CST")),
        *(f"{AT} {zone}" for zone in ("Europe/Berlin", "America/Port-au-Prince", "SystemV/PST8", "PST8PDT", "ROK")),
        *("12000-02-29", "0000-02-29", "-0004-02-29", "99999-01-01"),
        *("294247-01-10T04:00:54.775807Z", "294247-01-10T05:00:00+01:00", "-290308-12-21T19:59:05.224192Z"),
    ],
    "date": ["2024", "2024-01-01T", "2024-01-01TZ", "12000-02-29", "294248-01-01", "5881580-07-11", "-5877641-06-23"],
    "decimal(6,2)": ["1", "+1", "1.", ".5", "1E-1", "1,000", "1,0.0", "\u0661", "0e999999999"],
}


def fits(kind: str, text: str) -> bool:
    try:
        check_of(parse_columns(f"v {kind}")["v"])(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", UNREAD)
def test_text_that_spark_does_not_read_does_not_pass(kind):
    assert [text for text in UNREAD[kind] if fits(kind, text)] == []
    assert [text for text in READ[kind] if not fits(kind, text)] == []


def test_time_without_zone_has_the_same_bounds():
    wrong = ["294248-01-01", "10001-02-29", "2024-01-01T", f"{AT}Z"]
    assert not any(fits("timestamp_ntz", text) for text in wrong)
    assert fits("timestamp_ntz", "294247-01-10T04:00:54.775807")


def test_without_a_database_of_zones_a_name_is_left_to_spark(monkeypatch):
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    spark_moments._names.cache_clear()
    try:
        assert fits("timestamp", f"{AT} Mars/Phobos")
        assert not fits("timestamp", f"{AT} Factory")
    finally:
        spark_moments._names.cache_clear()
