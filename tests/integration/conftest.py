"""A real broker process for the integration tests: one for the session, fresh topics for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pulsar
import pytest
from tools.standalone_process import StandaloneProcess

from support.official import quiet_client

_numbers = count(1)


@pytest.fixture(scope="session")
def standalone(tmp_path_factory) -> Iterator[StandaloneProcess]:
    """A standalone process for the whole session."""
    directory = tmp_path_factory.mktemp("standalone")
    with StandaloneProcess(directory / "data", log=directory / "broker.log") as process:
        yield process


@pytest.fixture
def official(standalone, tmp_path) -> Iterator[pulsar.Client]:
    """An official client of the session's broker."""
    client = quiet_client(standalone.service_url, tmp_path)
    yield client
    client.close()


@pytest.fixture
def fresh_topic() -> str:
    """A topic name nobody used."""
    return f"persistent://public/default/it-{next(_numbers)}"
