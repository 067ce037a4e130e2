"""A trace of load in a file, replayed: docs/load-balancing.md has the format."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from geminga.app.configuration.config import build_settings
from geminga.app.configuration.config_sources import from_assignment, read_file
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.replay import Replay, RoundOutcome, TraceRound, decode_round
from geminga.model.errors import ConfigurationError, CorruptionError
from geminga.model.settings import settings_of

#: Of one line of a trace, and of rounds of a replay.
LINE_BYTES_MAX: Final = 64 << 20
ROUNDS_MAX: Final = 100_000


def replayed(
    trace: str, files: Sequence[str], assignments: Sequence[str], *, rounds: int, seed: int, is_json: bool
) -> dict[str, object]:
    """What each round did, and the settings by which. Raises ConfigurationError, CorruptionError, OSError."""
    config = _settings(files, assignments)
    if rounds > ROUNDS_MAX:
        raise ConfigurationError(f"--rounds is at most {ROUNDS_MAX}, not {rounds}")
    replay = Replay(config, _draws(seed))
    outcomes = [replay.step(said) for said in _rounds(trace)]
    if not outcomes:
        raise CorruptionError(f"{trace} is empty: a trace has one JSON object a line, one line for each round")
    outcomes += [replay.step(TraceRound()) for _ in range(rounds - len(outcomes))]
    settings = _settings_document(config)
    shown = settings if is_json else [f"{key}={value}" for key, value in settings.items()]
    return {"rounds": [_shown(outcome) for outcome in outcomes], "settings": shown}


def _settings(files: Sequence[str], assignments: Sequence[str]) -> LoadConfig:
    known = settings_of(LoadConfig)
    entries = [entry for path in files for entry in read_file(path)]
    for text in assignments:
        entry = from_assignment(text)
        if entry.key not in known:
            raise ConfigurationError(f"--set {entry.key}: no setting of load management")
        entries.append(entry)
    config = build_settings(LoadConfig, {entry.key: entry for entry in entries})
    config.check()
    return config


def _rounds(trace: str) -> Iterator[TraceRound]:
    number = 0
    source = sys.stdin.buffer if trace == "-" else Path(trace).open("rb")  # noqa: SIM115
    with source:
        while line := source.readline(LINE_BYTES_MAX + 1):
            number += 1
            where = f"{trace}, line {number}"
            if len(line) > LINE_BYTES_MAX:
                raise CorruptionError(f"{where} is longer than {LINE_BYTES_MAX} bytes")
            if number > ROUNDS_MAX:
                raise CorruptionError(f"{trace} has more than {ROUNDS_MAX} lines")
            if line.strip():
                yield decode_round(where, line)


def _draws(seed: int) -> Iterator[int]:
    rng = random.Random(seed)
    while True:
        yield rng.randrange(1 << 30)


def _shown(outcome: RoundOutcome) -> dict[str, object]:
    messages, bytes_ = outcome.worst()
    return {
        "round": outcome.number,
        "moves": [move._asdict() for move in outcome.moves],
        "splits": [split._asdict() for split in outcome.splits],
        "brokers": [
            {
                "broker": broker,
                "bundles": outcome.bundles[broker],
                "messagesPerSecond": round(rates.messages, 1),
                "bytesPerSecond": round(rates.bytes, 1),
            }
            for broker, rates in sorted(outcome.loads.items())
        ],
        "mostMessagesOfMean": round(messages, 3),
        "mostBytesOfMean": round(bytes_, 3),
    }


def _settings_document(config: LoadConfig) -> dict[str, object]:
    values = asdict(config)
    found: dict[str, object] = {}
    for key, (_, name) in settings_of(LoadConfig).items():
        value = values[name]
        if isinstance(value, bool):
            found[key] = "true" if value else "false"
        else:
            found[key] = ",".join(value) if isinstance(value, tuple) else "" if value is None else value
    return found
