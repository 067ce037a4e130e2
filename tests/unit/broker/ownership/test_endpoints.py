"""Advertised listeners."""

from __future__ import annotations

import pytest

from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.model.errors import UnavailableError

ENDPOINTS = Endpoints([Endpoint("internal", "pulsar://a:1"), Endpoint("external", "pulsar://b:2")])


def test_no_name_is_the_default() -> None:
    assert ENDPOINTS.find("") is ENDPOINTS.default
    assert ENDPOINTS.default.broker_url == "pulsar://a:1"


def test_names_find_their_endpoint_and_others_nothing() -> None:
    assert ENDPOINTS.find("external").broker_url == "pulsar://b:2"
    with pytest.raises(UnavailableError, match="other listener"):
        ENDPOINTS.find("other")
