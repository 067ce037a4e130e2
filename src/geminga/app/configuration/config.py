"""The configuration of a process: settings of all packages, from files, environment and command line.

Later sources win: defaults, files in the order given, environment, command line. Types and bounds come from each
package's ``setting(...)`` fields. A bad value is a :class:`ConfigurationError` that names key, value, place and
expectation. An unknown key is a warning that names it. A key that asks for what Geminga does not have is refused or
named (``core/unbuilt_keys.py``); what else Pulsar knows is passed over, so that an operator's whole ``broker.conf`` can
be used as it is: its quorums of two are lowered to the bookies that there are, where set by hand they are refused. An
empty value (``key=``) leaves the default, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from geminga.app.configuration.config_sources import ConfigEntry, collect_entries
from geminga.app.configuration.core.quorums import meet_quorums
from geminga.app.configuration.server_config import ServerConfig
from geminga.bookie.config import BookieConfig
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.broker.configuration.broker_config import AUTHORIZATION_PROVIDER, MULTI_ROLES_PROVIDER, BrokerConfig
from geminga.managed_ledger.shared.config import ManagedLedgerConfig
from geminga.model.errors import ConfigurationError
from geminga.model.settings import Setting, settings_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from geminga.app.configuration.bookie_tls_config import BrokerBookieTlsConfig
    from geminga.app.configuration.links_config import LinksConfig
    from geminga.app.configuration.tls_config import TlsConfig
    from geminga.broker.authentication.config import AuthenticationConfig
    from geminga.broker.load_rules.config import LoadConfig
    from geminga.model.secret import Secret
    from geminga.replication.config import ReplicationConfig

#: Unknown keys that get a warning of their own.
UNKNOWN_WARNINGS_MAX: Final = 20

QUORUM_KEYS: Final = (
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "managedLedgerDefaultAckQuorum",
)

#: Where one process is the whole cluster, its defaults are others than those of a broker in one of several.
STANDALONE_DEFAULTS: Final[Mapping[str, str]] = {
    "transactionCoordinatorEnabled": "true",
    "webSocketServiceEnabled": "true",
}
#: Loads the settings of auto-recovery, which a process with one bookie does not need.
AUTO_RECOVERY_KEY: Final = "autoRecoveryDaemonEnabled"
#: Bookies that a cluster is taken to have at least, where nothing is said of quorums.
CLUSTER_BOOKIES_LEAST: Final = 2
#: Keys by which a port speaks TLS.
TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls", "tlsEnabled", "bindAddresses")
#: Keys by which links to other brokers have TLS or credentials.
LINKS: Final = (
    "brokerClientTlsEnabled",
    "brokerClientAuthenticationPlugin",
    "brokerClientAuthenticationParameters",
)

#: A parsed value.
Value: TypeAlias = "bool | int | float | str | Secret | tuple[str, ...] | None"
C = TypeVar("C", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything configured, by package, and what to warn of."""

    server: ServerConfig
    broker: BrokerConfig
    managed_ledger: ManagedLedgerConfig
    bookkeeper: BookKeeperConfig
    bookie: BookieConfig
    warnings: tuple[str, ...] = ()
    #: Where there are several bookies; None: there is one, and nothing to restore.
    replication: ReplicationConfig | None = None
    #: Of a broker among others; None: it is alone, or its load is not managed.
    load: LoadConfig | None = None
    #: None: nobody is asked who they are.
    authentication: AuthenticationConfig | None = None
    #: None: no port speaks TLS.
    tls: TlsConfig | None = None
    #: None: other brokers are spoken to without TLS, as nobody.
    links: LinksConfig | None = None
    #: None: bookies of other processes are spoken to without TLS.
    bookie_tls: BrokerBookieTlsConfig | None = None

    @property
    def follows_files(self) -> bool:
        """Whether there may be files of certificates or credentials that are read again, by SIGHUP or with a link."""
        return any(part is not None for part in (self.tls, self.authentication, self.links, self.bookie_tls))

    def values(self) -> dict[str, str]:
        """Every key in force with its text, sorted; a key of several packages appears once."""
        found: dict[str, str] = {}
        for part in (
            self.server,
            self.broker,
            self.managed_ledger,
            self.bookkeeper,
            self.bookie,
            self.replication,
            self.load,
            self.authentication,
            self.tls,
            self.links,
            self.bookie_tls,
        ):
            if part is None:
                continue
            for key, (_, name) in settings_of(type(part)).items():
                found.setdefault(key, value_text(getattr(part, name)))
        return dict(sorted(found.items()))


CONFIG_CLASSES: Final = (
    ServerConfig,
    BrokerConfig,
    ManagedLedgerConfig,
    BookKeeperConfig,
    BookieConfig,
)


def load_config(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> Config:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError."""
    return config_from(collect_entries(files, env, overrides))


def config_from(entries: Iterable[ConfigEntry]) -> Config:
    """Configuration from ``entries``, later ones winning; raises :class:`ConfigurationError`."""
    latest = {entry.key: entry for entry in entries}
    for key, text in STANDALONE_DEFAULTS.items():
        if key not in latest or not latest[key].text.strip():
            latest[key] = ConfigEntry(key, text, "default")
    known = {key for config_class in CONFIG_CLASSES for key in settings_of(config_class)}
    warnings: list[str] = []
    authentication = _authentication_from(latest, known, warnings)
    tls, links = _tls_from(latest, known), _links_from(latest, known)
    warnings += _asked_in_vain(entry for key, entry in latest.items() if key not in known)
    server = _server_from(latest)
    replication = None
    if server.bookies > 1 or AUTO_RECOVERY_KEY in latest:
        from geminga.replication.config import ReplicationConfig

        known |= settings_of(ReplicationConfig).keys()
        replication = build_settings(ReplicationConfig, latest)
    bookie = build_settings(BookieConfig, latest)
    for key, path in (("journalDirectory", bookie.journal_directory), ("ledgerDirectories", bookie.ledger_directory)):
        if "," in path:
            raise ConfigurationError(
                f"{shown_assignment(latest[key])}: expected one path; geminga bookie takes several, and here several "
                "bookies (--bookies) have a directory each"
            )
    managed_ledger, lowered = _with_quorums_met(build_settings(ManagedLedgerConfig, latest), latest, server)
    warnings += [*lowered, *risks(bookie)]
    warnings += unknown_keys([entry for key, entry in latest.items() if key not in known], known)
    broker = build_settings(BrokerConfig, latest)
    check_authorization(broker, latest)
    return Config(
        server,
        broker,
        managed_ledger,
        build_settings(BookKeeperConfig, latest),
        bookie,
        tuple(warnings),
        replication if server.bookies > 1 else None,
        authentication=authentication,
        tls=tls,
        links=links,
    )


def _authentication_from(
    latest: Mapping[str, ConfigEntry], known: set[str], warnings: list[str]
) -> AuthenticationConfig | None:
    """How peers prove who they are; its keys become ``known``. None: nobody is asked. Raises ConfigurationError."""
    if not build_settings(ServerConfig, latest).authentication:
        return None
    # Not loaded by who asks nobody.
    from geminga.broker.authentication.config import AuthenticationConfig

    known.update(settings_of(AuthenticationConfig))
    authentication = build_settings(AuthenticationConfig, latest)
    warnings += authentication.check()
    return authentication


def _tls_from(latest: Mapping[str, ConfigEntry], known: set[str]) -> TlsConfig | None:
    """What is said of TLS, whose keys become ``known``; None: no port speaks it. Raises ConfigurationError."""
    texts = {key: latest[key].text.strip() for key in TLS_PORTS if key in latest}
    asked = [text for key, text in texts.items() if key != "bindAddresses" and text.lower() not in ("", "false")]
    if not asked and not any(scheme in texts.get("bindAddresses", "") for scheme in ("pulsar+ssl:", "https:")):
        return None
    # Not loaded by who has none.
    from geminga.app.configuration.tls_config import TlsConfig

    tls = build_settings(TlsConfig, latest)
    known.update(settings_of(TlsConfig))
    tls = tls.instead_of_plain({key for key, entry in latest.items() if not entry.text.strip()})
    tls.check()
    return tls


def _server_from(latest: Mapping[str, ConfigEntry]) -> ServerConfig:
    """Raises ConfigurationError."""
    server = build_settings(ServerConfig, latest)
    if server.configuration_sync_topic:
        from geminga.app.configuration.core.sync_topic import require_sync_topic

        require_sync_topic(server.configuration_sync_topic)
    return server


def _links_from(latest: Mapping[str, ConfigEntry], known: set[str]) -> LinksConfig | None:
    """What is said of links to other brokers, whose keys become ``known``. Raises ConfigurationError."""
    if all(latest[key].text.strip().lower() in ("", "false") for key in LINKS if key in latest):
        return None
    from geminga.app.configuration.links_config import LinksConfig

    known.update(settings_of(LinksConfig))
    return build_settings(LinksConfig, latest)


def _bookie_tls_from(latest: Mapping[str, ConfigEntry], known: set[str]) -> BrokerBookieTlsConfig | None:
    """What a broker of a cluster is told of TLS to its bookies. Raises ConfigurationError."""
    entry = latest.get("bookkeeperTLSClientAuthentication")
    if entry is None or entry.text.strip().lower() in ("", "false"):
        return None
    from geminga.app.configuration.bookie_tls_config import BrokerBookieTlsConfig

    known.update(settings_of(BrokerBookieTlsConfig))
    return build_settings(BrokerBookieTlsConfig, latest)


def balancing_from(entries: Iterable[ConfigEntry]) -> LoadConfig:
    """Settings of load, which a broker that is alone has no use for. Raises ConfigurationError."""
    # Not loaded by such a one.
    from geminga.broker.load_rules.config import LoadConfig

    load = build_settings(LoadConfig, {entry.key: entry for entry in entries})
    load.check()
    return load


def cluster_config_from(entries: Iterable[ConfigEntry], also: type[DataclassInstance]) -> Config:
    """The same for a broker of its own, whose metadata and bookies ``also`` configures; quorums as in Pulsar, of two.

    Settings of bookies are passed over: they are not in this process. Raises ConfigurationError.
    """
    # Not loaded by a broker that is alone.
    from geminga.broker.load_rules.config import LoadConfig

    latest = {entry.key: entry for entry in entries}
    known = {key for config_class in (*CONFIG_CLASSES, LoadConfig, also) for key in settings_of(config_class)}
    load = build_settings(LoadConfig, latest)
    load.check()
    warnings: list[str] = []
    authentication = _authentication_from(latest, known, warnings)
    tls, links = _tls_from(latest, known), _links_from(latest, known)
    bookie_tls = _bookie_tls_from(latest, known)
    warnings += _asked_in_vain(entry for key, entry in latest.items() if key not in known)
    managed_ledger = build_settings(ManagedLedgerConfig, latest)
    entries_of_quorums = [latest.get(key) for key in QUORUM_KEYS]
    values = (managed_ledger.ensemble_size, managed_ledger.write_quorum, managed_ledger.ack_quorum)
    said = [
        None if entry is None or not entry.text.strip() else value
        for entry, value in zip(entries_of_quorums, values, strict=True)
    ]
    met, wrong = meet_quorums(said, max([CLUSTER_BOOKIES_LEAST, *(value for value in said if value is not None)]))
    if wrong:
        named = ", ".join(shown_assignment(entry) for entry in entries_of_quorums if entry is not None)
        raise ConfigurationError(
            f"{named}: expected a write quorum no more than the ensemble, an ack quorum no more than the write quorum"
        )
    managed_ledger = replace(managed_ledger, ensemble_size=met.ensemble, write_quorum=met.write, ack_quorum=met.ack)
    warnings += unknown_keys([entry for key, entry in latest.items() if key not in known], known)
    broker = build_settings(BrokerConfig, latest)
    check_authorization(broker, latest)
    return Config(
        _server_from(latest),
        broker,
        managed_ledger,
        build_settings(BookKeeperConfig, latest),
        BookieConfig(),
        tuple(warnings),
        load=load,
        authentication=authentication,
        tls=tls,
        links=links,
        bookie_tls=bookie_tls,
    )


def value_text(value: Value) -> str:
    """A value as a configuration file would have it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def parse_value(setting: Setting, type_name: str, entry: ConfigEntry) -> Value:
    """The typed value of ``entry``; raises :class:`ConfigurationError` naming key, value, place, expectation."""
    text = entry.text.strip()
    base = type_name.removesuffix("|None")
    try:
        value = _parsed(base, text)
    except ValueError as error:
        raise _bad_value(setting, base, entry) from error
    if isinstance(value, int | float) and not isinstance(value, bool):
        below = setting.minimum is not None and value < setting.minimum
        above = setting.maximum is not None and value > setting.maximum
        if below or above or (isinstance(value, float) and not isfinite(value)):  # a time that never ends
            raise _bad_value(setting, base, entry)
    if setting.choices and (value if isinstance(value, tuple) else (value,)) and not _chosen(setting, value):
        raise _bad_value(setting, base, entry)
    return value


def build_settings(config_class: type[C], latest: Mapping[str, ConfigEntry]) -> C:
    """The settings of one class out of what was assigned, by key; raises ConfigurationError."""
    settings = settings_of(config_class)
    types = {field.name: type_name(field.type) for field in fields(config_class)}
    values: dict[str, Value] = {}
    for key, (setting, name) in settings.items():
        entry = latest.get(key)
        if entry is None:
            continue
        if entry.text.strip():
            values[name] = parse_value(setting, types[name], entry)
        elif types[name].endswith("|None"):
            values[name] = None
    return config_class(**values)


def type_name(declared: object) -> str:
    """The type of a field, as it is written, without spaces."""
    text = declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))
    return text.replace(" ", "")


def _parsed(base: str, text: str) -> Value:
    if "\0" in text:  # in no name and no path
        raise ValueError(text)
    if base == "bool":
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(text)
        return lowered == "true"
    if base == "int":
        return int(text)
    if base == "float":
        return float(text)
    if base == "str":
        return text
    if base == "Secret":
        # Not loaded by who has none.
        from geminga.model.secret import Secret

        return Secret(text)
    if base == "tuple[str,...]":
        return tuple(item.strip() for item in text.split(",") if item.strip())
    raise TypeError(f"a setting can not be of type {base}")


def _chosen(setting: Setting, value: Value) -> bool:
    given = value if isinstance(value, tuple) else (str(value),)
    return all(item in setting.choices for item in given)


def _bad_value(setting: Setting, base: str, entry: ConfigEntry) -> ConfigurationError:
    expectation = setting.expectation or {"bool": "true or false", "int": "an integer", "float": "a number"}.get(
        base, base
    )
    if setting.choices and not setting.expectation:
        expectation = "one of " + ", ".join(setting.choices)
    return ConfigurationError(f"{shown_assignment(entry)}: expected {expectation}")


def _asked_in_vain(entries: Iterable[ConfigEntry]) -> Iterator[str]:
    """A line for each key that asks for what is not there. Raises ConfigurationError where no process may start so."""
    set_entries = [entry for entry in entries if entry.text.strip().lower() not in ("", "false")]
    if not set_entries:
        return
    # The table is long, and rarely needed.
    from geminga.app.configuration.core.unbuilt_keys import asked_in_vain

    asked = [(entry, group) for entry in set_entries if (group := asked_in_vain(entry.key, entry.text)) is not None]
    refused = [
        f"{shown_assignment(entry)}: {group.what}: {group.instead}" for entry, group in asked if group.is_refused
    ]
    if refused:
        raise ConfigurationError(
            f"not built, and refused where it is asked for: {'; '.join(refused)}. Remove the key to start without"
        )
    for entry, group in asked:
        yield f"{shown_assignment(entry)} has no effect ({group.what}): {group.instead}"


def shown_assignment(entry: ConfigEntry) -> str:
    """``key=value (place)`` for messages."""
    # What names a secret is not repeated in a log. Loaded where there is something to tell.
    from geminga.model.secret import DOTS, names_secret

    return f"{entry.key}={DOTS if names_secret(entry.key) else entry.text} ({entry.source})"


def check_authorization(broker: BrokerConfig, latest: Mapping[str, ConfigEntry]) -> None:
    """Raise ConfigurationError for a provider that is not built, and where nobody would be asked who they are."""
    provider = latest.get("authorizationProvider")
    if provider is not None and broker.authorization_provider not in (AUTHORIZATION_PROVIDER, MULTI_ROLES_PROVIDER):
        raise ConfigurationError(
            f"{shown_assignment(provider)}: this provider is not built, and another one would give other rights; "
            f"expected {AUTHORIZATION_PROVIDER} or {MULTI_ROLES_PROVIDER}"
        )
    authentication = latest.get("authenticationEnabled")
    is_authenticated = authentication is not None and authentication.text.strip().lower() == "true"
    if broker.authorization_enabled and not is_authenticated:
        raise ConfigurationError(
            f"{shown_assignment(latest['authorizationEnabled'])}: nobody is asked who they are, so that nobody could "
            "be allowed anything; expected authenticationEnabled=true with it, as in Pulsar"
        )


def _with_quorums_met(
    config: ManagedLedgerConfig, latest: Mapping[str, ConfigEntry], server: ServerConfig
) -> tuple[ManagedLedgerConfig, list[str]]:
    """Quorums that the bookies can meet, and what to say of it; raises ConfigurationError for those set by hand."""
    bookies = max(1, server.bookies - len(server.bookies_left_out))
    entries = [latest.get(key) for key in QUORUM_KEYS]
    values = (config.ensemble_size, config.write_quorum, config.ack_quorum)
    said = [
        None if entry is None or not entry.text.strip() else value for entry, value in zip(entries, values, strict=True)
    ]
    met, places = meet_quorums(said, bookies)
    config = replace(config, ensemble_size=met.ensemble, write_quorum=met.write, ack_quorum=met.ack)
    wrong = [entry for place in places if (entry := entries[place]) is not None]
    if not wrong:
        return config, []
    there = f"there is {bookies} bookie" if bookies == 1 else f"there are {bookies} bookies"
    by_hand = [entry for entry in wrong if not entry.is_inherited]
    if by_hand:
        raise ConfigurationError(
            f"{', '.join(map(shown_assignment, by_hand))}: {there}, in this process, and the ensemble is no more than "
            "that, the write quorum no more than the ensemble, the ack quorum no more than the write quorum; with this "
            "setting no topic could be written to. Set "
            f"{', '.join(f'{key}={value}' for key, value in zip(QUORUM_KEYS, met, strict=True))}, or leave them out"
        )
    lowered = " and ".join(sorted({str(met[place]) for place in places}))
    return config, [f"{', '.join(map(shown_assignment, wrong))}: lowered to {lowered}, since {there} here"]


def risks(bookie: BookieConfig) -> Iterator[str]:
    """What to warn of in the settings of a bookie."""
    # Pulsar's standalone.conf has this, so it comes with a file that nobody looked at.
    if not bookie.journal_sync_data:
        yield (
            "journalSyncData=false: messages are acknowledged before they are on stable storage, "
            "a power loss loses some"
        )


def unknown_keys(unused: Sequence[ConfigEntry], known: AbstractSet[str]) -> Iterator[str]:
    """A line for each of ``unused`` that is no key of Pulsar or BookKeeper either, up to a limit."""
    if not unused:
        return
    # The list of Pulsar's keys is long and rarely needed.
    from geminga.app.configuration.core.unbuilt_keys import asked_in_vain
    from geminga.app.configuration.known_keys import KNOWN_KEYS, KNOWN_PREFIXES, REMOVED_KEYS

    unknown = [
        entry
        for entry in unused
        if entry.key not in KNOWN_KEYS
        and not entry.key.startswith(KNOWN_PREFIXES)
        and asked_in_vain(entry.key, entry.text) is None
    ]
    for entry in unknown[:UNKNOWN_WARNINGS_MAX]:
        if entry.key in REMOVED_KEYS:
            yield f"configuration key {entry.key} ({entry.source}) is no longer used: {REMOVED_KEYS[entry.key]}"
        else:
            yield f"unknown configuration key {entry.key} ({entry.source}) is ignored{_suggestion(entry.key, known)}"
    if len(unknown) > UNKNOWN_WARNINGS_MAX:
        yield f"{len(unknown) - UNKNOWN_WARNINGS_MAX} more unknown configuration keys are ignored"


def _suggestion(key: str, known: AbstractSet[str]) -> str:
    import difflib  # only where a key is unknown

    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
