"""Fixtures that give a test a running broker: one per session, a fresh namespace per test.

Loaded by pytest through its entry point in every session, so it imports nothing heavy until a fixture is used.
See docs/pytest.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from geminga import Standalone

#: The tenant of the tests' namespaces.
TENANT: Final = "public"
#: Characters of a test's name that go into its topic's name.
TOPIC_NAME_CHARACTERS_MAX: Final = 60

_numbers: Final = count(1)


@pytest.fixture(scope="session")
def geminga_config() -> Mapping[str, object]:
    """Pulsar's configuration keys for the session's broker; override it in your ``conftest.py``."""
    return {}


@pytest.fixture(scope="session")
def geminga_broker(geminga_config: Mapping[str, object]) -> Iterator[Standalone]:
    """A running broker, in memory, on free ports, for the whole session."""
    from geminga import Standalone

    with Standalone(config=geminga_config) as broker:
        yield broker


@pytest.fixture(scope="session")
def geminga_service_url(geminga_broker: Standalone) -> str:
    """``pulsar://127.0.0.1:port`` of the session's broker."""
    return geminga_broker.service_url


@pytest.fixture(scope="session")
def geminga_admin_url(geminga_broker: Standalone) -> str:
    """``http://127.0.0.1:port`` of the session's broker: admin REST and metrics."""
    return geminga_broker.web_service_url


@pytest.fixture
def geminga_namespace(geminga_broker: Standalone) -> Iterator[str]:
    """``tenant/namespace`` of this test alone; deleted with everything in it afterwards."""
    namespace = f"{TENANT}/test-{next(_numbers)}"
    geminga_broker.create_namespace(namespace)
    yield namespace
    geminga_broker.delete_namespace(namespace)


@pytest.fixture
def geminga_topic(geminga_namespace: str, request: pytest.FixtureRequest) -> str:
    """The name of a topic of this test alone; its first producer or consumer creates it."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")[:TOPIC_NAME_CHARACTERS_MAX]
    return f"persistent://{geminga_namespace}/{name or 'topic'}"
