"""Brokers and bookies as rows."""

from __future__ import annotations

from geminga.app.console.core.cluster_rows import BookieRow, BrokerRow, LoadView, bookie_rows, broker_rows, load_view


def test_each_broker_says_what_it_is_and_serves() -> None:
    found = broker_rows(
        ["b:8080", "a:8080", "c:8080"],
        {"serviceUrl": "http://a:8080", "brokerId": "a:8080"},
        {"webServiceUrl": "http://b:8080"},
        {"a:8080": 4, "b:8080": "no answer"},
    )
    assert found == [
        BrokerRow("a:8080", True, False, 4),
        BrokerRow("b:8080", False, True, None, "no answer"),
        BrokerRow("c:8080", False, False, None, "not asked"),
    ]


def test_load_is_in_percent_of_what_there_is() -> None:
    report = {
        "brokerVersionString": "0.1.0",
        "pulsarServiceUrl": "pulsar://a:6650",
        "numTopics": 3,
        "bundles": ["x", "y"],
        "cpu": {"usage": 50.0, "limit": 200.0},
        "memory": {"usage": 1.0, "limit": 0.0},
        "msgRateIn": 5,
    }
    assert load_view(report) == LoadView("0.1.0", "pulsar://a:6650", 3, 2, 0, 0, {"cpu": 25.0}, 5.0, 0.0)
    assert load_view({}).usage == {}


def test_bookies_are_told_with_their_racks_known_or_not() -> None:
    racks = {"default": {"a:3181": {"rack": "/r", "hostname": "a"}, "gone:3181": {"rack": "/s"}}}
    assert bookie_rows({"bookies": [{"bookieId": "b:3181"}, {"bookieId": "a:3181"}]}, racks) == [
        BookieRow("a:3181", "/r", "default", "a"),
        BookieRow("b:3181", "", "", ""),
        BookieRow("gone:3181", "/s", "default", ""),
    ]
    assert bookie_rows({}, {}) == []
