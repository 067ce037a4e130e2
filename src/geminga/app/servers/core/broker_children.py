"""What a broker process of a standalone is told, and when one that ended is started again. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.app.configuration.core.log_options import LogOptions
from geminga.model.errors import ConfigurationError

#: Until an ended process is started again: from the first, doubled up to the second while it ends again.
RESTART_S_MIN: Final = 0.5
RESTART_S_MAX: Final = 30.0
#: One that served for so long did not end again.
SERVED_S: Final = 60.0
#: Between two looks at whether a process is heard of, and for how many it may be silent behind the end of its session:
#: one that was paused goes on, one that hangs is ended, and another takes its ports.
LOOK_S: Final = 1.0
SILENT_LOOKS_MAX: Final = 60
#: Looks at one that starts, until it was heard of for the first time.
STARTING_LOOKS_MAX: Final = 600

PORT_MAX: Final = 65535

#: Keys that name ports or addresses of one process, which several can not share.
SOLE_KEYS: Final = ("bindAddresses", "advertisedListeners", "internalListenerName")


#: Of ports with TLS: the first process has those of the standalone, the others others.
TLS_PORT_KEYS: Final = ("brokerServicePortTls", "webServicePortTls")
#: Of the plain ports, by which the processes reach each other.
PLAIN_PORT_KEYS: Final = ("brokerServicePort", "webServicePort")


class Assignment(NamedTuple):
    """A setting of the standalone, with where it stands; fields as of ``config_sources.ConfigEntry``."""

    key: str
    text: str
    source: str
    is_inherited: bool = False


class ChildPlan(NamedTuple):
    """Everything a broker process is told, as a line of JSON on its standard input."""

    #: From 0; the first has the standalone's ports.
    number: int
    #: What its session with the metadata is called: of this life of this process alone.
    name: str
    #: Absolute path of the data directory, which it reads and writes nothing in.
    directory: str
    #: Of the metadata server's life.
    token: str
    log: LogOptions
    #: 0: the kernel's choice.
    broker_port: int
    web_port: int
    session_timeout_ms: int
    #: The configuration of the standalone, as it was when that started.
    entries: tuple[Assignment, ...]

    def encode(self) -> bytes:
        """One line."""
        fields = self._asdict()
        fields["log"] = list(self.log)
        fields["entries"] = [list(entry) for entry in self.entries]
        return json.dumps(fields).encode() + b"\n"


def decode_plan(line: bytes) -> ChildPlan:
    """What :meth:`ChildPlan.encode` made; raises ConfigurationError: it was started by hand, or by another release."""
    try:
        fields = json.loads(line)
        entries = tuple(Assignment(*entry) for entry in fields.pop("entries"))
        log = LogOptions(*fields.pop("log"))
        return ChildPlan(**fields, log=log, entries=entries)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(
            f"a broker process is started by geminga standalone --brokers, which tells it what to do: {error}"
        ) from None


def child_entries(plan: ChildPlan) -> list[Assignment]:
    """The configuration of that process: its own ports."""
    ports = {"brokerServicePort": plan.broker_port, "webServicePort": plan.web_port}
    latest = {entry.key: entry.text.strip() for entry in plan.entries}
    if plan.number:
        is_row = latest.get("gemingaConsecutivePorts", "").lower() == "true"
        for key in TLS_PORT_KEYS:
            text = latest.get(key, "")
            if text.isdigit():
                ports[key] = int(text) + plan.number if is_row else 0
    return [*plan.entries, *(Assignment(key, str(port), "--brokers") for key, port in ports.items())]


def refuse_shared_ports(entries: Sequence[Assignment]) -> None:
    """Raise ConfigurationError where ports are named that every broker process would have to take."""
    latest = {entry.key: entry for entry in entries}
    for key in SOLE_KEYS:
        entry = latest.get(key)
        if entry is not None and entry.text.strip():
            raise ConfigurationError(
                f"{key}={entry.text} ({entry.source}): with --brokers each process has ports of its own, and all but "
                "the first those of the kernel's choice; leave it out, or run without --brokers"
            )
    for plain, secured in zip(PLAIN_PORT_KEYS, TLS_PORT_KEYS, strict=True):
        asked = latest.get(secured)
        if plain in latest and not latest[plain].text.strip() and asked is not None and asked.text.strip():
            raise ConfigurationError(
                f"{plain}= ({latest[plain].source}): with --brokers the processes reach each other by their plain "
                f"ports, which stay beside {secured}; leave it out, or run without --brokers"
            )


def ports_of(count: int, broker_port: int, web_port: int, *, is_consecutive: bool) -> list[tuple[int, int]]:
    """Broker's and web port of each process, 0 for the kernel's choice; raises ConfigurationError."""
    if not is_consecutive:
        return [(broker_port, web_port), *((0, 0) for _ in range(count - 1))]
    found = [(broker_port + number, web_port + number) for number in range(count)]
    ports = [port for pair in found for port in pair]
    if not broker_port or not web_port or max(ports, default=0) > PORT_MAX or len(set(ports)) < len(ports):
        raise ConfigurationError(
            f"gemingaConsecutivePorts=true: {count} brokers take brokerServicePort={broker_port}, "
            f"webServicePort={web_port} and those behind; expected two such rows of ports from 1 to {PORT_MAX} "
            "that have none in common"
        )
    return found


class Hearing:
    """Whether one life of a process hangs. Looks are counted, not seconds: who counts may be paused, too."""

    __slots__ = ("_silent", "_starting", "_was_heard")

    def __init__(self) -> None:
        #: Looks since it was heard last.
        self._silent = 0
        #: One that starts takes its time: looks before it was heard for the first time.
        self._starting = 0
        self._was_heard = False

    @property
    def fell_silent(self) -> bool:
        """Whether the last look was the first at which it was not heard of."""
        return self._silent == 1

    @property
    def hangs(self) -> bool:
        """Whether it is to be waited for no longer."""
        return self._silent >= SILENT_LOOKS_MAX or self._starting >= STARTING_LOOKS_MAX

    def look(self, *, is_heard: bool, is_to_end: bool = False) -> None:
        """Its session lives, or does not. ``is_to_end``: it was told to end, and need not start any more."""
        self._was_heard = self._was_heard or is_heard
        self._silent = self._silent + 1 if (self._was_heard or is_to_end) and not is_heard else 0
        self._starting = 0 if self._was_heard else self._starting + 1


class Restarts:
    """How long one process of them is waited for after each of its ends."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = RESTART_S_MIN

    def wait_s(self, served_s: float) -> float:
        """It ended after so many seconds: until the next start."""
        if served_s >= SERVED_S:
            self._next_s = RESTART_S_MIN
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, RESTART_S_MAX)
        return wait_s
