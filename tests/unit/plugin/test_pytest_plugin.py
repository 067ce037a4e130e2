"""The plugin as a user's session sees it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

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

        def test_after(geminga_admin_url):
            (first, second) = seen
            assert first[0] == second[0]
            assert first[1] != second[1]
            left = json.load(urllib.request.urlopen(f"{geminga_admin_url}/admin/v2/namespaces/public"))
            assert left == ["public/default"]
        """
    )
    result.assert_outcomes(passed=3)


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
            assert "geminga.app.servers.embedded" not in sys.modules
            assert not [t for t in threading.enumerate() if t.name.startswith("geminga")]
        """
    )
    result.assert_outcomes(passed=1)
