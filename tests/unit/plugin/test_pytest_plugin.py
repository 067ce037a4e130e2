"""The plugin as a user's session sees it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from support.house.page_blocks import blocks_of
from support.house.source_tree import ROOT

pytest_plugins = ["pytester"]


@pytest.fixture
def session(pytester: pytest.Pytester):
    def run(test: str, conftest: str = "") -> pytest.RunResult:
        pytester.makeconftest(conftest)
        pytester.makepyfile(test)
        # Those of this environment that are of no use here take time to load.
        arguments = ["-q", *(f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "xdist")), "-oaddopts="]
        # Where the package is not installed, its plugin is not found by itself.
        if not entry_points(group="pytest11", name="geminga"):
            arguments += ["-p", "geminga.pytest_plugin"]
        return pytester.runpytest_subprocess(*arguments)

    return run


def test_test_gets_a_running_broker(session) -> None:
    result = session(
        """
        import urllib.request
        import pulsar

        def test_message_arrives(geminga_service_url, geminga_topic):
            client = pulsar.Client(geminga_service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            consumer = client.subscribe(geminga_topic, "s")
            client.create_producer(geminga_topic).send(b"hello")
            assert consumer.receive(10_000).data() == b"hello"
            client.close()

        def test_admin_answers(geminga_admin_url, geminga_namespace):
            url = f"{geminga_admin_url}/admin/v2/namespaces/{geminga_namespace}/topics"
            assert urllib.request.urlopen(url).read() == b"[]"
        """
    )
    result.assert_outcomes(passed=2)


def test_broker_is_shared_and_namespaces_are_not(session) -> None:
    result = session(
        """
        import urllib.request, json
        import pytest

        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_one(geminga_broker, geminga_namespace, geminga_topic, number):
            seen.append((geminga_broker.broker_port, geminga_namespace))
            assert geminga_topic.startswith(f"persistent://{geminga_namespace}/test_one")

        def test_that_deletes_its_namespace(geminga_broker, geminga_namespace):
            geminga_broker.delete_namespace(geminga_namespace)

        def test_after(geminga_admin_url):
            (first, second) = seen
            assert first[0] == second[0]
            assert first[1] != second[1]
            left = json.load(urllib.request.urlopen(f"{geminga_admin_url}/admin/v2/namespaces/public"))
            assert left == ["public/default"]
        """
    )
    result.assert_outcomes(passed=4)


def test_configuration_is_overridden_in_conftest(session) -> None:
    result = session(
        """
        import json, urllib.request

        def test_it(geminga_admin_url):
            url = f"{geminga_admin_url}/admin/v2/brokers/configuration/runtime"
            assert json.load(urllib.request.urlopen(url))["maxMessageSize"] == "12345"
        """,
        """
        import pytest

        @pytest.fixture(scope="session")
        def geminga_config():
            return {"maxMessageSize": 12345}
        """,
    )
    result.assert_outcomes(passed=1)


def test_session_without_fixtures_starts_nothing(session) -> None:
    result = session(
        """
        import sys, threading

        def test_nothing():
            assert not [name for name in sys.modules if name.startswith(("geminga.app", "geminga.client"))]
            assert not [t for t in threading.enumerate() if t.name.startswith("geminga")]
        """
    )
    result.assert_outcomes(passed=1)


def page_of(*sections: str) -> str:
    """The tests of these sections of docs/pytest.md, as one file."""
    page = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
    found = [part for part in page.split("\n## ") if part.partition("\n")[0] in sections]
    assert len(found) == len(sections)
    return "\n".join(block.text for part in found for block in blocks_of(part) if block.kind == "python")


LEFT_OPEN = """
import asyncio
import pytest

@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()

kept = []

def test_kept(loop, geminga_client, geminga_topic):
    kept.append(geminga_client)
    loop.run_until_complete(geminga_client.create_producer(geminga_topic))

def test_was_closed():
    assert kept[0].is_closed

def test_unused(geminga_client):
    pass

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_of_anyio(geminga_client, geminga_topic):
    async with geminga_client as client:
        await client.create_producer(geminga_topic)

def test_gone(geminga_client, geminga_topic):
    asyncio.run(asyncio.wait_for(geminga_client.create_producer(geminga_topic), 20))
"""


def test_clients_and_the_clock_do_as_the_page_says_and_what_is_left_open_is_closed_or_told_of(session) -> None:
    """A runner that keeps its loop, anyio's, and ``asyncio.run``; in one session, for a start costs more than all the
    rest."""
    result = session(page_of("A client", "A clock that moves") + LEFT_OPEN)
    result.assert_outcomes(passed=8, errors=1)
    result.stdout.fnmatch_lines(["*geminga_client was left open*async with geminga_client*"])


@pytest.mark.long
def test_the_processes_of_the_page_do_as_they_say(session) -> None:
    session(page_of("A broker that is killed")).assert_outcomes(passed=2)


@pytest.mark.long
def test_the_clusters_of_the_page_do_as_they_say(session) -> None:
    cluster = """
import geminga.client.blocking

def test_cluster_serves(geminga_cluster):
    with geminga.client.blocking.connect(geminga_cluster.service_url) as client:
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"hello")
        assert consumer.receive(timeout_millis=10_000).data() == b"hello"
"""
    session(page_of("A small cluster") + cluster).assert_outcomes(passed=2)
