"""Fixtures that give a test a running broker: one per session, a fresh namespace per test.

With clients of it, and brokers of a test's own: killed and started again, without room on the disk, with a clock that
moves, or a small cluster.

Loaded by pytest through its entry point in every session, so it imports nothing heavy until a fixture is used.
See docs/pytest.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import asyncio

    from geminga import Standalone
    from geminga.app.testing.broker_process import BrokerProcess
    from geminga.app.testing.timed_standalone import TimedStandalone
    from geminga.client import Client
    from geminga.client.blocking import Client as BlockingClient

__all__ = [
    "BrokerProcess",
    "TimedStandalone",
    "geminga_admin_url",
    "geminga_blocking_client",
    "geminga_broker",
    "geminga_client",
    "geminga_cluster",
    "geminga_config",
    "geminga_namespace",
    "geminga_process",
    "geminga_service_url",
    "geminga_timed_broker",
    "geminga_topic",
]

#: The tenant of the tests' namespaces.
TENANT: Final = "public"
#: Brokers and bookies of ``geminga_cluster``.
CLUSTER_BROKERS: Final = 2
CLUSTER_BOOKIES: Final = 3
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
    """``tenant/namespace`` of this test alone; deleted with everything in it afterwards, unless the test did so."""
    from geminga.model.errors import NotFoundError

    namespace = f"{TENANT}/test-{next(_numbers)}"
    geminga_broker.create_namespace(namespace)
    yield namespace
    with suppress(NotFoundError):
        geminga_broker.delete_namespace(namespace)


@pytest.fixture
def geminga_topic(geminga_namespace: str, request: pytest.FixtureRequest) -> str:
    """The name of a topic of this test alone; its first producer or consumer creates it."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")[:TOPIC_NAME_CHARACTERS_MAX]
    return f"persistent://{geminga_namespace}/{name or 'topic'}"


# ---- clients


@pytest.fixture
def geminga_client(geminga_service_url: str) -> Iterator[Client]:
    """An asyncio client of the session's broker, for the loop of the test, whichever runs it: pytest-asyncio, anyio on
    asyncio, or ``asyncio.run`` in the test. Close it there: ``async with geminga_client: ...``.

    What was left open is closed at the end where its loop is still there, as a loop of a module or a session is; where
    it is not, the test has an error that says so.
    """
    from geminga.client import connect

    client = connect(geminga_service_url)
    yield client
    loop = client.place.loop
    if loop is None or client.is_closed:
        return
    if loop.is_closed() or loop.is_running():
        pytest.fail(
            "geminga_client was left open, and its loop is gone: close it within the test, by "
            "'async with geminga_client:'",
            pytrace=False,
        )
    _finish(loop, client)


def _finish(loop: asyncio.AbstractEventLoop, client: Client) -> None:
    loop.run_until_complete(client.close())


@pytest.fixture
def geminga_blocking_client(geminga_service_url: str) -> Iterator[BlockingClient]:
    """A client of the session's broker for tests without ``await``, for any thread; closed at the end."""
    from geminga.client.blocking import connect

    with connect(geminga_service_url) as client:
        yield client


# ---- brokers of a test's own


@pytest.fixture
def geminga_process(tmp_path: Path, geminga_config: Mapping[str, object]) -> Iterator[BrokerProcess]:
    """A broker as a process, on a directory of this test, running: to be killed, started again, given a full disk."""
    from geminga.app.testing.broker_process import BrokerProcess

    with BrokerProcess(tmp_path / "geminga", geminga_config) as process:
        yield process


@pytest.fixture
def geminga_cluster(tmp_path: Path, geminga_config: Mapping[str, object]) -> Iterator[BrokerProcess]:
    """Two broker processes over three bookies, on a directory of this test, running; topics are spread over both."""
    from geminga.app.testing.broker_process import BrokerProcess

    with BrokerProcess(
        tmp_path / "geminga-cluster", geminga_config, brokers=CLUSTER_BROKERS, bookies=CLUSTER_BOOKIES
    ) as process:
        yield process


@pytest.fixture
def geminga_timed_broker(geminga_config: Mapping[str, object]) -> Iterator[TimedStandalone]:
    """A broker of this test alone, in memory, whose clock :meth:`TimedStandalone.advance` moves."""
    from geminga.app.testing.timed_standalone import TimedStandalone

    with TimedStandalone(config=geminga_config) as broker:
        yield broker


def __getattr__(name: str) -> object:
    """The classes of what fixtures give, with their first use: for types, and for brokers of one's own."""
    if name == "BrokerProcess":
        from geminga.app.testing.broker_process import BrokerProcess

        return BrokerProcess
    if name == "TimedStandalone":
        from geminga.app.testing.timed_standalone import TimedStandalone

        return TimedStandalone
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
