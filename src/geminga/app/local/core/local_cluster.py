"""A cluster of processes on one machine: what was asked for, who was started, who is to be. Pure.

The document and its rules: ``docs/formats/local-cluster.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.model.topic_name import is_valid_named_entity

#: Of what it writes; 2 is for several ZooKeeper servers, which a program that knows 1 only would not find.
FORMAT: Final = 1
FORMAT_OF_SEVERAL: Final = 2
CLUSTER_NAME_DEFAULT: Final = "local"
BOOKIES_DEFAULT: Final = 3
BROKERS_DEFAULT: Final = 2
#: Servers of ZooKeeper: of an even number no more may be lost than of one less.
ZOOKEEPERS: Final = (1, 3, 5)
BOOKIES_MAX: Final = 32
BROKERS_MAX: Final = 32
#: Copies of an entry where a cluster has bookies enough: a broker's default.
COPIES_DEFAULT: Final = 2

#: Set by the command itself -> what to use instead.
OWN_BROKER_KEYS: Final[Mapping[str, str]] = {
    "clusterName": "--cluster",
    "brokerServicePort": "--broker-port",
    "webServicePort": "--web-port",
    "metadataStoreUrl": "nothing: it is this cluster's ZooKeeper",
    "configurationMetadataStoreUrl": "nothing: it is this cluster's ZooKeeper",
    "bookkeeperMetadataServiceUri": "nothing: it is this cluster's ZooKeeper",
    "zookeeperServers": "nothing: it is this cluster's ZooKeeper",
    "bindAddress": "nothing: all of it stays on 127.0.0.1",
    "bindAddresses": "nothing: all of it stays on 127.0.0.1",
    "advertisedAddress": "nothing: all of it stays on 127.0.0.1",
    "advertisedListeners": "nothing: all of it stays on 127.0.0.1",
}
OWN_BOOKIE_KEYS: Final[Mapping[str, str]] = {
    "bookiePort": "nothing: bookies are found by their names",
    "bookieId": "nothing: bookies are named by their directories",
    "metadataServiceUri": "nothing: it is this cluster's ZooKeeper",
    "zkServers": "nothing: it is this cluster's ZooKeeper",
    "bindAddress": "nothing: all of it stays on 127.0.0.1",
    "advertisedAddress": "nothing: all of it stays on 127.0.0.1",
    "httpServerEnabled": "nothing: it is asked how a bookie is",
    "httpServerPort": "nothing: the kernel picks it",
    "httpServerHost": "nothing: all of it stays on 127.0.0.1",
    "journalDirectory": "--dir",
    "journalDirectories": "--dir",
    "ledgerDirectories": "--dir",
}


class MemberKind(StrEnum):
    """What a process is, in the order of the start; they are stopped in the reverse order."""

    ZOOKEEPER = "zookeeper"
    BOOKIE = "bookie"
    BROKER = "broker"


class MemberState(StrEnum):
    """What has become of a member."""

    READY = "ready"
    #: It is there, and does not answer that it is ready.
    NOT_READY = "not ready"
    GONE = "gone"
    #: Another process has its number by now.
    REPLACED = "gone, its pid is another process's"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    cluster: str = CLUSTER_NAME_DEFAULT
    bookies: int = BOOKIES_DEFAULT
    brokers: int = BROKERS_DEFAULT
    zookeepers: int = 1
    #: 0: any. Of the first server, and of the first broker.
    zookeeper_port: int = 0
    broker_port: int = 6650
    web_port: int = 8080
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    bookie_settings: Mapping[str, str] = field(default_factory=dict)

    def quorums(self) -> dict[str, str]:
        """What brokers must be told where there are fewer bookies than their default wants; what was set stays."""
        if self.bookies >= COPIES_DEFAULT:
            return {}
        copies = str(self.bookies)
        keys = ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum")
        return {key: copies for key in keys if key not in self.broker_settings}


@dataclass(frozen=True, slots=True)
class LocalMember:
    """A process that was started."""

    name: str
    kind: MemberKind
    pid: int
    #: Tells it from a later process with its pid.
    started: str
    ports: Mapping[str, int] = field(default_factory=dict)

    def state(self, started_now: str | None, *, is_ready: bool) -> MemberState:
        """``started_now``: of the process that has this pid now, None if there is none."""
        if started_now is None:
            return MemberState.GONE
        if started_now != self.started:
            return MemberState.REPLACED
        return MemberState.READY if is_ready else MemberState.NOT_READY


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The document of ``cluster.json``."""

    plan: Plan
    members: tuple[LocalMember, ...] = ()
    created_by: str = ""

    def member(self, name: str) -> LocalMember | None:
        """Who was started last under this name."""
        return next((member for member in self.members if member.name == name), None)

    @property
    def zookeepers(self) -> list[LocalMember]:
        """The servers of ZooKeeper that were started, in order."""
        found = [self.member(name) for name in member_names(MemberKind.ZOOKEEPER, self.plan.zookeepers)]
        return [member for member in found if member is not None]

    @property
    def metadata_url(self) -> str:
        """Where the servers that were started are, as every process of the cluster is told it; empty if none was."""
        hosts = ",".join(f"127.0.0.1:{member.ports['client']}" for member in self.zookeepers)
        return f"zk:{hosts}" if hosts else ""

    def with_member(self, member: LocalMember) -> ClusterState:
        """``member`` in the place of who had its name, or behind its kind."""
        others = [other for other in self.members if other.name != member.name]
        return replace(self, members=tuple(sorted([*others, member], key=_order)))


def _order(member: LocalMember) -> tuple[int, int, str]:
    return (list(MemberKind).index(member.kind), len(member.name), member.name)


def member_names(kind: MemberKind, count: int) -> list[str]:
    """``bookie-1``, ``bookie-2``, ...; ``broker-1``, ...; ``zookeeper``, or ``zookeeper-1``, ..."""
    if kind is MemberKind.ZOOKEEPER and count == 1:
        return [kind.value]
    return [f"{kind}-{number + 1}" for number in range(count)]


def change_plan(plan: Plan, asked: Mapping[str, object], *, is_new: bool) -> Plan:
    """``plan`` with what was ``asked`` now (fields of :class:`Plan`; None: not asked). Raises ConfigurationError."""
    given = {name: value for name, value in asked.items() if value is not None}
    for name in ("broker_settings", "bookie_settings"):
        if name in given:
            given[name] = {**getattr(plan, name), **given[name]}  # type: ignore[dict-item]
    changed = replace(plan, **given)  # type: ignore[arg-type]
    _check(changed)
    if not is_new and changed.cluster != plan.cluster:
        raise ConfigurationError(f"--cluster {changed.cluster}: this cluster is called {plan.cluster}, and stays so")
    if not is_new and changed.zookeepers != plan.zookeepers:
        raise ConfigurationError(
            f"--zookeepers {changed.zookeepers}: this cluster has {plan.zookeepers}, which is written in each of them"
        )
    if not is_new and changed.bookies < plan.bookies:
        raise ConfigurationError(
            f"--bookies {changed.bookies}: there are {plan.bookies} with data, and ledgers on those left out would be "
            "out of reach; expected as many or more"
        )
    return changed


def _check(plan: Plan) -> None:
    if not is_valid_named_entity(plan.cluster) or not plan.cluster.isascii():
        raise ConfigurationError(f"--cluster {plan.cluster!r}: expected letters, digits and -=:._")
    for option, number, least, most in (
        ("--bookies", plan.bookies, 1, BOOKIES_MAX),
        ("--brokers", plan.brokers, 1, BROKERS_MAX),
        ("--zookeeper-port", plan.zookeeper_port, 0, 65535),
        ("--broker-port", plan.broker_port, 0, 65535),
        ("--web-port", plan.web_port, 0, 65535),
    ):
        if not least <= number <= most:
            expected = str(least) if least == most else f"a whole number from {least} to {most}"
            raise ConfigurationError(f"{option} {number}: expected {expected}")
    if plan.zookeepers not in ZOOKEEPERS:
        raise ConfigurationError(
            f"--zookeepers {plan.zookeepers}: expected {' or '.join(map(str, ZOOKEEPERS))}, a majority of them up"
        )
    ports = [port for port in (plan.zookeeper_port, plan.broker_port, plan.web_port) if port]
    if len(set(ports)) < len(ports):
        raise ConfigurationError("--zookeeper-port, --broker-port, --web-port: expected different ports")


def settings_from(option: str, assignments: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """``KEY=VALUE`` texts; raises ConfigurationError for another shape, and for a key that the command sets itself."""
    found = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{option} {text}: expected KEY=VALUE")
        key = key.strip()
        if key in own:
            raise ConfigurationError(f"{option} {key}: geminga cluster sets it itself; use {own[key]}")
        found[key] = value.strip()
    return found


# ---- the document


def encode_state(state: ClusterState) -> str:
    """The text of ``cluster.json``."""
    plan = state.plan
    document = {
        "format": FORMAT if plan.zookeepers == 1 else FORMAT_OF_SEVERAL,
        "createdBy": state.created_by,
        "clusterName": plan.cluster,
        "bookies": plan.bookies,
        "brokers": plan.brokers,
        **({} if plan.zookeepers == 1 else {"zookeepers": plan.zookeepers}),
        "zookeeperPort": plan.zookeeper_port,
        "brokerPort": plan.broker_port,
        "webPort": plan.web_port,
        "brokerSettings": dict(plan.broker_settings),
        "bookieSettings": dict(plan.bookie_settings),
        "members": [
            {
                "name": member.name,
                "kind": member.kind.value,
                "pid": member.pid,
                "started": member.started,
                "ports": dict(member.ports),
            }
            for member in state.members
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def decode_state(text: str, path: str) -> ClusterState:
    """What ``path`` holds; raises DataDirectoryError for what :func:`encode_state` does not write."""
    try:
        document = json.loads(text)
        number = document["format"]
        if isinstance(number, int) and number > FORMAT_OF_SEVERAL:
            raise DataDirectoryError(
                f"{path} has format {number}, and this program knows formats up to {FORMAT_OF_SEVERAL}: use a newer "
                "Geminga"
            )
        if type(number) is not int or number not in (FORMAT, FORMAT_OF_SEVERAL):
            raise ValueError(f"format {number!r}")
        plan = Plan(
            cluster=_text(document["clusterName"]),
            bookies=_number(document["bookies"]),
            brokers=_number(document["brokers"]),
            zookeepers=1 if number == FORMAT else _several(document["zookeepers"]),
            zookeeper_port=_number(document["zookeeperPort"]),
            broker_port=_number(document["brokerPort"]),
            web_port=_number(document["webPort"]),
            broker_settings=_texts(document["brokerSettings"]),
            bookie_settings=_texts(document["bookieSettings"]),
        )
        members = tuple(_member(item, plan.zookeepers > 1) for item in document["members"])
        _unique([member.name for member in members])
        return ClusterState(plan, members, _text(document["createdBy"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataDirectoryError(
            f"{path} is damaged ({str(error) or type(error).__name__}): "
            "which processes belong to the cluster is not known"
        ) from error


def _several(value: object) -> int:
    number = _number(value)
    if number not in ZOOKEEPERS[1:]:
        raise ValueError(f"{number} servers of ZooKeeper")
    return number


def _member(item: Mapping[str, object], has_several: bool) -> LocalMember:
    ports = item["ports"]
    if not isinstance(ports, dict):
        raise ValueError("ports")
    name, kind = _text(item["name"]), MemberKind(_text(item["kind"]))
    # It becomes part of paths.
    prefix, _, number = name.partition("-")
    is_sole = kind is MemberKind.ZOOKEEPER and not has_several
    if prefix != kind or not (name == kind if is_sole else number.isascii() and number.isdigit()):
        raise ValueError(f"a {kind} named {name!r}")
    pid = _number(item["pid"])
    if pid <= 1:
        raise ValueError(f"pid {pid}")
    return LocalMember(
        name, kind, pid, _text(item["started"]), {_text(key): _number(value) for key, value in ports.items()}
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} in the place of a text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} in the place of a number")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} in the place of settings")
    return {_text(key): _text(item) for key, item in value.items()}


def _unique(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("two members of one name")
