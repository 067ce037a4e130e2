"""The names of Pulsar's keys."""

from __future__ import annotations

import re

from geminga.app.configuration.known_keys import KNOWN_KEYS


def test_names_look_like_keys() -> None:
    assert len(KNOWN_KEYS) > 400
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]+", key) for key in KNOWN_KEYS)
    assert {"zookeeperServers", "loadBalancerEnabled", "tlsKeyFilePath"} <= KNOWN_KEYS
