"""What the commands of Pulsar's image mean."""

from __future__ import annotations

import re

import pytest

from geminga.app.container.core.bookkeeper_words import bookkeeper_call
from geminga.app.container.core.client_words import client_call, perf_call
from geminga.app.container.core.words import POLICIES_LINE, Call, pulsar_call
from geminga.model.errors import ConfigurationError

STANDALONE = ("standalone", "--data", "data/standalone", "--config", "conf/standalone.conf", "--announce")
CLIENT_CONF = {"brokerServiceUrl": "pulsar://localhost:6650/"}


def test_the_command_of_testcontainers_starts_a_standalone_that_says_what_they_wait_for() -> None:
    call = pulsar_call(["standalone", "--no-functions-worker", "-nss"], {})
    assert call.arguments == (*STANDALONE, POLICIES_LINE)
    assert (call.role, call.conf) == ("standalone", "conf/standalone.conf")
    assert call.notes == ("bin/pulsar standalone: -nss: without effect here",)


def test_a_standalone_with_functions_starts_without_them_and_says_so() -> None:
    assert any("functions are not built" in note for note in pulsar_call(["standalone"], {}).notes)


def test_options_of_a_standalone() -> None:
    words = ["standalone", "-nfw", "--wipe-data", "--num-bookies", "3", "-a=pulsar", "-c", "/etc/own.conf"]
    call = pulsar_call(words, {"PULSAR_LOG_LEVEL": "WARN"})
    assert call.wipes == "data/standalone"
    assert call.conf == "/etc/own.conf"
    assert call.arguments[6:] == (
        *("--announce", POLICIES_LINE)[1:],
        *("--bookies", "3", "--set", "advertisedAddress=pulsar", "--log-level", "warning"),
    )


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        (["broker"], {}, ("broker", "--config", "conf/broker.conf")),
        (["broker", "-bc", "a.conf"], {}, ("broker", "--config", "a.conf")),
        (["broker"], {"PULSAR_BROKER_CONF": "/b.conf"}, ("broker", "--config", "/b.conf")),
        (["broker"], {"PULSAR_LOG_FORMAT": "JSON"}, ("broker", "--config", "conf/broker.conf", "--log-format", "json")),
        (["proxy"], {"PULSAR_PROXY_CONF": "p.conf"}, ("proxy", "--config", "p.conf")),
        (["proxy", "-zk", "z:1"], {}, ("proxy", "--config", "conf/proxy.conf", "--metadata", "zk:z:1")),
        (["bookie"], {}, ("bookie", "--data", "data/bookkeeper", "--config", "conf/bookkeeper.conf")),
        (["autorecovery"], {"BOOKIE_CONF": "r.conf"}, ("autorecovery", "--config", "r.conf")),
        (["tokens", "create", "-s", "me"], {}, ("tokens", "create", "-s", "me")),
        (["version"], {}, ("--version",)),
        (
            [
                "initialize-cluster-metadata",
                "--cluster",
                "c",
                "-zk",
                "z:2181",
                "--configuration-store=z:2181",
                "-uw",
                "u",
            ],
            {},
            (
                *("initialize-cluster-metadata", "--cluster", "c", "--metadata-store", "zk:z:2181"),
                *("--configuration-metadata-store", "zk:z:2181", "-uw", "u"),
            ),
        ),
    ],
)
def test_commands_of_pulsar(words: list[str], environment: dict[str, str], expected: tuple[str, ...]) -> None:
    assert pulsar_call(words, environment).arguments == expected


def test_the_shell_of_zookeeper_keeps_its_words() -> None:
    assert pulsar_call(["zookeeper-shell", "-server", "z", "get", "/a"], {}).shell == ("-server", "z", "get", "/a")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["functions-worker"], "functions are not built"),
        (["proxy", "word"], "expected options, not word"),
        (["zookeeper"], "no ZooKeeper in this image"),
        (["nonsense"], "expected one of autorecovery, bookie, broker"),
        (["standalone", "--only-broker"], "not built; expected bin/pulsar broker"),
        (["standalone", "--oops"], "unknown option --oops"),
        (["standalone", "--num-bookies"], "--num-bookies without its value"),
        (["standalone", "word"], "expected options, not word"),
        (["broker", "--run-bookie"], "expected a process of its own"),
    ],
)
def test_what_is_not_built_or_not_known_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        pulsar_call(words, {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["autorecovery"], ("autorecovery", "--config", "conf/bookkeeper.conf")),
        (["shell", "initnewcluster"], ("bookie", "initnewcluster", "--config", "conf/bookkeeper.conf")),
        (
            ["shell", "bookieformat", "-nonInteractive", "-force", "-deleteCookie"],
            (
                *("bookie", "format", "--data", "data/bookkeeper", "--config", "conf/bookkeeper.conf"),
                *("--force", "--delete-cookie"),
            ),
        ),
        (["shell", "-conf", "b.conf", "metaformat", "-n"], ("bookie", "metaformat", "--config", "b.conf")),
        (
            ["shell", "decommissionbookie", "-bookieid", "b:3181"],
            ("autorecovery", "decommission", "b:3181", "--config", "conf/bookkeeper.conf"),
        ),
    ],
)
def test_commands_of_bookkeeper(words: list[str], expected: tuple[str, ...]) -> None:
    assert bookkeeper_call(words, {}).arguments == expected


def test_the_instance_id_is_asked_of_the_metadata_store() -> None:
    assert bookkeeper_call(["shell", "whatisinstanceid"], {}) == Call((), "conf/bookkeeper.conf", asks_instance_id=True)


@pytest.mark.parametrize("words", [[], ["shell"], ["shell", "recover"], ["localbookie"], ["shell", "metaformat", "x"]])
def test_other_words_of_bookkeeper_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        bookkeeper_call(words, {})


def test_messages_are_split_as_pulsars_command_splits_them() -> None:
    call = client_call(["produce", "t", "-m", "a,b", "-n", "2", "-db"], CLIENT_CONF)
    assert call.arguments == (
        *("client", "produce", "t", "--messages", "a", "--messages", "b", "--num-produce", "2"),
        *("--disable-batching", "--url", "pulsar://localhost:6650/"),
    )
    whole = client_call(["produce", "-s", "", "-m", '{"a":1,"b":2}', "t"], {})
    assert whole.arguments == ("client", "produce", "t", "--messages", '{"a":1,"b":2}')


def test_a_consumer_and_where_it_connects() -> None:
    words = [
        "--url",
        "pulsar://other:6650",
        "consume",
        "t",
        "-s",
        "true",
        "-t",
        "Key_Shared",
        "-m",
        "NonDurable",
        "-n",
        "0",
    ]
    assert client_call(words, CLIENT_CONF).arguments == (
        *("client", "consume", "t", "--subscription-name", "true", "--subscription-type", "Key_Shared"),
        *("--num-messages", "0", "--non-durable", "--url", "pulsar://other:6650"),
    )


def test_credentials_of_the_command_line_win_over_those_of_the_file_as_a_whole() -> None:
    conf = {"authPlugin": "token", "authParams": "token:file", "brokerServiceUrl": ""}
    from_file = client_call(["consume", "t", "-s", "s"], conf).arguments
    assert from_file[:5] == ("client", "--auth-plugin", "token", "--auth-params", "token:file")
    given = client_call(["--auth-plugin", "tls", "consume", "t", "-s", "s"], conf).arguments
    assert given[:4] == ("client", "--auth-plugin", "tls", "consume")


@pytest.mark.parametrize("words", [[], ["read", "t"], ["produce", "-m", "a"], ["produce", "t", "u"]])
def test_other_words_of_a_client_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="expected one"):
        client_call(words, {})


def test_perf_takes_the_address_anywhere() -> None:
    call = perf_call(["produce", "t", "-u", "pulsar://b:6650", "-r", "10"], CLIENT_CONF)
    assert call.arguments == ("perf", "produce", "t", "-r", "10", "--url", "pulsar://b:6650")
    with pytest.raises(ConfigurationError, match="without its value"):
        perf_call(["consume", "-u"], {})
    with pytest.raises(ConfigurationError, match="expected one of consume, produce"):
        perf_call(["transaction"], {})
