"""Configuration: types, bounds, precedence, and what an operator is told."""

from __future__ import annotations

import pytest

from geminga.app.configuration.config import (
    CONFIG_CLASSES,
    Config,
    check_authorization,
    config_from,
    load_config,
    parse_value,
    value_text,
)
from geminga.app.configuration.config_sources import ConfigEntry
from geminga.app.configuration.core.unbuilt_keys import GROUPS
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.model.errors import ConfigurationError
from geminga.model.settings import Setting, settings_of


def entry(text: str) -> ConfigEntry:
    return ConfigEntry("someKey", text, "test")


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("int", "42", 42),
        ("int", " -1 ", -1),
        ("float", "0.5", 0.5),
        ("bool", "true", True),
        ("bool", "FALSE", False),
        ("str", "a b", "a b"),
        ("int|None", "7", 7),
        ("tuple[str,...]", "a, b,,c", ("a", "b", "c")),
    ],
)
def test_value_of_each_type_is_parsed(type_name: str, text: str, value: object) -> None:
    assert parse_value(Setting("someKey", ""), type_name, entry(text)) == value


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("int", "4.5"),
        ("int", "x"),
        ("float", "x"),
        ("float", "nan"),
        ("float", "inf"),
        ("float", "1e999"),
        ("bool", "yes"),
        ("bool", "1"),
        ("str", "a\0b"),
        ("tuple[str,...]", "a,\0"),
    ],
)
def test_value_of_the_wrong_type_names_key_value_place_and_expectation(type_name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_value(Setting("someKey", "something else"), type_name, entry(text))
    assert str(caught.value) == f"someKey={text} (test): expected something else"


def test_value_outside_its_bounds_is_refused() -> None:
    setting = Setting("someKey", "1 to 3", minimum=1, maximum=3)
    assert parse_value(setting, "int", entry("1")) == 1
    assert parse_value(setting, "int", entry("3")) == 3
    for text in ("0", "4"):
        with pytest.raises(ConfigurationError, match="1 to 3"):
            parse_value(setting, "int", entry(text))


def test_value_that_is_no_choice_is_refused() -> None:
    setting = Setting("someKey", "", choices=("a", "b"))
    assert parse_value(setting, "str", entry("b")) == "b"
    with pytest.raises(ConfigurationError, match="one of a, b"):
        parse_value(setting, "str", entry("c"))


def test_later_sources_win(tmp_path) -> None:
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    first.write_text("brokerServicePort=1\nwebServicePort=1\nkeepAliveIntervalSeconds=1\nmaxMessageSize=1\n")
    second.write_text("webServicePort=2\nkeepAliveIntervalSeconds=2\nmaxMessageSize=2\n")
    environment = {"GEMINGA_keepAliveIntervalSeconds": "3", "GEMINGA_maxMessageSize": "3", "PATH": "/bin"}
    config = load_config([str(first), str(second)], environment, ["maxMessageSize=4"])
    assert config.server.broker_port == 1
    assert config.server.web_port == 2
    assert config.broker.keep_alive_interval_s == 3
    assert config.broker.message_bytes_max == 4


def test_empty_value_leaves_the_default() -> None:
    assert load_config(overrides=["brokerServicePort=", "clusterName="]) == Config(
        *(getattr(load_config(), name) for name in ("server", "broker", "managed_ledger", "bookkeeper", "bookie"))
    )


def test_defaults_bind_loopback_only() -> None:
    assert load_config().server.bind_address == "127.0.0.1"


def test_unknown_key_is_a_warning_that_names_it_and_the_nearest() -> None:
    (warning,) = load_config(overrides=["maxMesageSize=5"]).warnings
    assert "maxMesageSize" in warning
    assert "did you mean maxMessageSize?" in warning


def test_key_that_went_away_is_a_warning_that_says_what_is_so_instead() -> None:
    (warning,) = load_config(overrides=["gemingaLedgerIdBatchSize=5"]).warnings
    assert warning.startswith("configuration key gemingaLedgerIdBatchSize (--set) is no longer used: ledger ids")


def test_many_unknown_keys_are_counted() -> None:
    warnings = load_config(overrides=[f"nobodyKnows{index}=1" for index in range(25)]).warnings
    assert len(warnings) == 21
    assert warnings[-1] == "5 more unknown configuration keys are ignored"


def test_acknowledging_before_syncing_is_warned_of() -> None:
    (warning,) = load_config(overrides=["journalSyncData=false"]).warnings
    assert "power loss" in warning


QUORUMS = ["managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum"]


def test_quorums_of_an_operators_file_are_lowered_to_the_bookies_that_there_are(tmp_path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}=2\n" for key in QUORUMS))
    config = load_config([str(conf)])
    (warning,) = config.warnings
    assert all(f"{key}=2 ({conf}, line {number})" in warning for number, key in enumerate(QUORUMS, 1))
    assert "lowered to 1" in warning
    ledgers = config.managed_ledger
    assert (ledgers.ensemble_size, ledgers.write_quorum, ledgers.ack_quorum) == (1, 1, 1)
    assert [config.values()[key] for key in QUORUMS] == ["1", "1", "1"]


@pytest.mark.parametrize("key", QUORUMS)
def test_quorum_set_by_hand_that_can_not_be_met_is_refused(tmp_path, key: str) -> None:
    toml, conf = tmp_path / "geminga.toml", tmp_path / "broker.conf"
    toml.write_text(f"{key} = 2\n")
    conf.write_text("".join(f"{key}=2\n" for key in QUORUMS))
    for arguments in (
        ([], {}, [f"{key}=2"]),
        ([], {f"GEMINGA_{key}": "2"}, []),
        ([str(toml)], {}, []),
        ([str(conf)], {}, [f"{key}=3"]),
    ):
        with pytest.raises(ConfigurationError, match=rf"{key}=[23] .*there is 1 bookie"):
            load_config(*arguments)
    assert load_config([str(conf)], {}, [f"{other}=1" for other in QUORUMS]).warnings == ()


def test_key_of_several_packages_reaches_all_of_them() -> None:
    config = load_config(overrides=["clusterName=east"])
    assert config.server.cluster_name == "east"
    assert config.broker.cluster_name == "east"


def test_authorization_without_authentication_refuses_to_start() -> None:
    with pytest.raises(ConfigurationError, match=r"authorizationEnabled=true \(--set\): nobody is asked who they are"):
        load_config(overrides=["authorizationEnabled=true", "superUserRoles=root"])
    asked = {"authenticationEnabled": ConfigEntry("authenticationEnabled", "true", "--set")}
    check_authorization(BrokerConfig(authorization_enabled=True), asked)
    config = load_config(overrides=["superUserRoles=root,admin", "authorizationAllowWildcardsMatching=true"])
    assert config.broker.super_user_roles == ("root", "admin")
    assert not config.broker.authorization_enabled
    assert config.broker.authorization_has_wildcards
    assert config.warnings == ()


@pytest.mark.parametrize("name", ["org.example.MyProvider", "MultiRolesTokenAuthorizationProvider", "x"])
def test_other_authorization_providers_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"authorizationProvider={name} .*this provider is not built"):
        load_config(overrides=[f"authorizationProvider={name}"])
    for pulsars in ("PulsarAuthorizationProvider", "MultiRolesTokenAuthorizationProvider"):
        said = f"authorizationProvider=org.apache.pulsar.broker.authorization.{pulsars}"
        assert load_config(overrides=[said]).warnings == ()


@pytest.mark.parametrize(
    "assignment",
    [
        "acknowledgmentAtBatchIndexLevelEnabled=true",
        "maxMessageSize=1024000",
        "allowAutoTopicCreation=true",
        "allowAutoTopicCreationType=non-partitioned",
        "subscriptionKeySharedUseConsistentHashing=false",
        "transactionCoordinatorEnabled=false",
        "topicLevelPoliciesEnabled=false",
        "brokerDeduplicationEnabled=true",
        "managedLedgerMaxEntriesPerLedger=100",
        "journalMaxGroupWaitMSec=1",
    ],
)
def test_settings_of_operators_are_accepted(assignment: str) -> None:
    config = load_config(overrides=[assignment])
    assert not any("unknown" in warning for warning in config.warnings)


def test_values_lists_every_key_with_text_that_parses_back() -> None:
    config = load_config(overrides=["maxMessageSize=1000000", "advertisedListeners=a:pulsar://h:1"])
    values = config.values()
    assert values["maxMessageSize"] == "1000000"
    assert values["advertisedListeners"] == "a:pulsar://h:1"
    assert list(values) == sorted(values)
    again = config_from(ConfigEntry(key, text, "test") for key, text in values.items())
    assert again == config


def test_value_text_is_what_a_file_would_hold() -> None:
    assert [value_text(value) for value in (None, True, False, 3, 0.5, "x", ("a", "b"))] == [
        "",
        "true",
        "false",
        "3",
        "0.5",
        "x",
        "a,b",
    ]


def test_transactions_are_on_where_one_process_is_the_cluster_and_off_in_a_broker_of_its_own(tmp_path) -> None:
    key = "transactionCoordinatorEnabled"
    assert BrokerConfig().transaction_coordinator_enabled is False, "Pulsar's default"
    assert load_config().broker.transaction_coordinator_enabled is True
    assert load_config().warnings == ()
    assert load_config().values()[key] == "true"
    assert config_from([]).broker.transaction_coordinator_enabled is True
    # Said by hand, or by a file of Pulsar's, it is as it was said; nothing said leaves it.
    conf = tmp_path / "standalone.conf"
    conf.write_text(f"{key}=false\n")
    assert load_config([str(conf)]).broker.transaction_coordinator_enabled is False
    assert load_config(env={f"GEMINGA_{key}": "false"}).broker.transaction_coordinator_enabled is False
    assert load_config([str(conf)], {}, [f"{key}=true"]).broker.transaction_coordinator_enabled is True
    assert load_config(overrides=[f"{key}="]).broker.transaction_coordinator_enabled is True


def test_no_setting_asks_in_vain() -> None:
    settings = {key for config_class in CONFIG_CLASSES for key in settings_of(config_class)}
    asked = {key for key in settings for group in GROUPS if key in group.keys}
    assert asked == set()


@pytest.mark.parametrize("key", ["journalDirectory", "ledgerDirectories"])
def test_a_standalone_takes_one_directory_of_a_kind(key):
    with pytest.raises(ConfigurationError, match=f"{key}=/a,/b.*: expected one path; geminga bookie takes several"):
        load_config(overrides=[f"{key}=/a,/b"])


@pytest.mark.parametrize(
    ("assignments", "follows"),
    [
        ([], False),
        (["brokerServicePortTls=6651"], True),
        (["authenticationEnabled=true", "anonymousUserRole=nobody"], True),
        (["brokerClientAuthenticationPlugin=token", "brokerClientAuthenticationParameters=file:///t"], True),
    ],
)
def test_signal_has_files_read_where_there_may_be_some(assignments: list[str], follows: bool) -> None:
    """Else it ends the process, as it always did."""
    assert load_config(overrides=assignments).follows_files is follows
