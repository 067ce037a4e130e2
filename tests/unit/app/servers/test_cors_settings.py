"""What the settings say that pages of other origins may."""

from __future__ import annotations

import pytest

from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.web.cors import cors_of
from geminga.model.errors import ConfigurationError


def test_settings_become_rules_and_those_that_can_not_be_are_told() -> None:
    found = cors_of(ServerConfig(cors_origins=("http://a.example",), cors_methods=("get",), cors_max_age_s=5))
    assert (found.origins, found.methods, found.max_age_s) == ({"http://a.example"}, ("GET",), 5)
    assert "Last-Event-ID" in found.headers
    with pytest.raises(ConfigurationError, match="gemingaHttpCorsAllowCredentials=true"):
        cors_of(ServerConfig(cors_origins=("*",), cors_credentials=True))


def test_no_page_of_another_origin_may_anything_unless_it_is_said() -> None:
    assert ServerConfig().cors_origins == ()
