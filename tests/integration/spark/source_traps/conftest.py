"""Besides a broker whose ledgers roll over after a few entries: the session of a source's clients."""

from __future__ import annotations

import pytest

from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.rules.client_options import ClientConfiguration


@pytest.fixture(scope="module")
def session(broker) -> ClientSession:
    return session_for(ClientConfiguration(broker.service_url))
