"""One embedded broker for the REST tests; a namespace for each test comes from the product's own plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from geminga import Standalone
from support.processes.official import official_client
from support.worlds.rest import Rest


@pytest.fixture(scope="session")
def broker() -> Iterator[Standalone]:
    with Standalone(config={"forceDeleteNamespaceAllowed": True, "httpMaxRequestSize": 100_000}) as running:
        yield running


@pytest.fixture(scope="session")
def rest(broker: Standalone) -> Rest:
    return Rest(broker.web_service_url)


@pytest.fixture
def namespace(broker: Standalone, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"public/rest-{abs(hash(request.node.nodeid)):x}"
    broker.create_namespace(name)
    yield name
    if any(policy == name for policy in Rest(broker.web_service_url).get("namespaces/public").json):
        broker.delete_namespace(name)


@pytest.fixture
def client(broker: Standalone, tmp_path) -> Iterator[pulsar.Client]:
    with official_client(broker.service_url, tmp_path) as client:
        yield client
