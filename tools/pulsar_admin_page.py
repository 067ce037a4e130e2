"""Write ``docs/pulsar-admin.md``: what ``geminga admin`` has of each command of ``pulsar-admin``, from its rows.

``python -m tools.pulsar_admin_page`` writes the page; ``--check`` writes nothing and fails if it is another one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from geminga.app.administration.command import Command
from geminga.app.administration.groups import GROUPS, UNBUILT, commands_of
from tools.interop.admin.meant import MEANT_OF_TOOLS
from tools.interop.admin.recorded import GONE_LATER, recorded, recorded_later

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "pulsar-admin.md"
#: Commands whose broker answers 501, with what is not built; a test asks a broker for each.
REFUSED: Final[dict[str, str]] = {
    "namespaces list-cluster": "a path of Pulsar 1",
    "schemas extract": "runs a class of Java",
}
_WAITS: Final = "waits for the broker's answer and tells it; `pulsar-admin` ends with 0 before it came"
#: Commands that do more than ``pulsar-admin``, or what it does not.
BETTER: Final = {
    "brokers backlog-quota-check": _WAITS,
    "namespaces get-anti-affinity-namespaces": "asks at the path of Pulsar 2; 4.0.8 asks at one that no broker serves",
    "namespaces get-schema-autoupdate-strategy": "prints what is set, or that nothing is; 4.0.8 ends with a Java error",
    "persistent grant-permission": "takes several actions with commas between",
    "topicPolicies get-dispatcher-pause-on-ack-state-persistent": "prints the answer; 4.0.8 prints a Java object",
    "topicPolicies remove-dispatcher-pause-on-ack-state-persistent": _WAITS,
    "topicPolicies remove-replication-clusters": _WAITS,
    "topicPolicies set-replication-clusters": _WAITS,
    "topics delete": "with several topics: all are tried, and those that were not deleted are named",
    "topics get-shadow-topics": "says that there are none; 4.0.8 ends with a Java error",
}
_BY_PARTITION: Final = "of a topic with partitions: each is tried, and those that failed are named"
#: Of commands that both have: options of 5.0.1, and what is done with them here.
_LATER_OPTIONS: Final = (
    "`topics analyze-backlog --backlog-scan-max-entries`, `--quiet`, `--plain` are not taken: what the broker says of "
    "one look is printed",
    "`namespaces set-clusters --skipCompareTopicPartitions` is not needed: as in 4.0, topics are compared with those "
    "of the other cluster only where `--compareTopicPartitions` says so",
    "`topics list --property` is not taken: the broker is one of 4.2",
    "`namespaces set-is-allow-auto-update-schema --enable-for-replicator` (or `=false`) is taken; where nothing was "
    "said replicators bring no schemas, as in 4.2",
    "`clusters create` and `update` take `--tls-factory-plugin` and `--tls-factory-plugin-params`, which 5.0.1 "
    "renamed; `brokers healthcheck` takes `--topic-version`, which is gone there",
)
_HEAD: Final = """\
# pulsar-admin, command by command

`geminga admin` has the groups, commands, options and aliases of `pulsar-admin` 4.0.8, the newest of its line that can
be had as an artifact, and those that [5.0.1](#pulsar-501) adds; it and `geminga pulsar-admin`, which prints as
`pulsar-admin` does, are told about in [administration](administration.md).
This page is written by `python -m tools.pulsar_admin_page` from the rows of the
commands. Tests hold that each takes the options of `pulsar-admin`, sends the requests that it was seen to send, and is
served, or refused as not built, by a broker of ours.

What holds for all: a command that destroys something asks first (`--yes` says so), `--dry-run` prints the request
instead of sending it; `-o json`, `-o yaml` and a table for people; errors of one paragraph; exit code 1 for what
failed and 2 for wrong words.
"""


def status_of(words: str) -> tuple[str, str]:
    """``same``, ``better`` or ``not built``, and why."""
    group, _, name = words.partition(" ")
    if group not in GROUPS:
        return "not built", UNBUILT.get(group, "the tool's own documentation")
    if words in REFUSED:
        return "not built", REFUSED[words]
    if words in BETTER:
        return "better", BETTER[words]
    command: Command = commands_of(group)[name]
    return ("better", _BY_PARTITION) if command.is_by_partition else ("same", "")


def page() -> str:
    """Its text."""
    told = {one.words: status_of(one.words) for one in recorded()}
    counts = {each: sum(status == each for status, _ in told.values()) for each in ("same", "better", "not built")}
    lines = [_HEAD, "| Group | Commands | Same | Better | Not built |", "|---|---|---|---|---|"]
    groups = sorted({words.partition(" ")[0] for words in told})
    for group in groups:
        found = [status for words, (status, _) in told.items() if words.startswith(f"{group} ")]
        numbers = [str(found.count(each) or "") for each in counts]
        lines.append(f"| `{group}` | {len(found)} | {' | '.join(numbers)} |")
    lines.append(f"| all | {len(told)} | {' | '.join(map(str, counts.values()))} |")
    for group in groups:
        lines += [
            "",
            f"## {group}",
            *_group({words: each for words, each in told.items() if words.startswith(f"{group} ")}),
        ]
    return "\n".join([*lines, *_later(), "", "## What is printed otherwise", *_otherwise()]) + "\n"


def _later() -> Iterator[str]:
    """Commands that 4.0.8 has not, and what else 5.0.1 changed."""
    told = {one.words: status_of(one.words) for one in recorded_later()}
    yield from ("", "## Pulsar 5.0.1", f"It has {len(told)} commands that 4.0.8 has not:", "")
    yield from ("| Command | Here | Why |", "|---|---|---|")
    yield from (f"| `{words}` | {status} | {why} |" for words, (status, why) in told.items())
    yield from ("", f"It has no {', '.join(f'`{words}`' for words in GONE_LATER)} any more.", "")
    yield from (f"- {text}." for text in _LATER_OPTIONS)
    known = {*told, *(one.words for one in recorded())}
    others = sorted(one.words for group in GROUPS for one in commands_of(group).values() if one.words not in known)
    yield from ("", f"Here alone: {', '.join(f'`{words}`' for words in others)} (the broker refuses `start`).")


def _otherwise() -> Iterator[str]:
    yield "By `geminga pulsar-admin`, next to `pulsar-admin` 4.0.8 at the same broker (`make interop"
    yield 'INTEROP_ARGS="admin --tools apache"`, or `--tools geminga`). 764 lines were run at'
    yield "Apache Pulsar 4.2.4 and at Geminga. What differs in what is printed, or in how a command ends:"
    yield ""
    yield from (f"- {one.row}." for one in MEANT_OF_TOOLS)


def _group(told: dict[str, tuple[str, str]]) -> Iterator[str]:
    same = sorted(words.partition(" ")[2] for words, (status, _) in told.items() if status == "same")
    if same:
        yield f"Same ({len(same)}): {', '.join(f'`{name}`' for name in same)}."
    for status in ("better", "not built"):
        reasons: dict[str, list[str]] = {}
        for words, (found, why) in told.items():
            if found == status:
                reasons.setdefault(why, []).append(words.partition(" ")[2])
        for why, names in sorted(reasons.items()):
            yield ""
            yield f"{status.capitalize()} ({len(names)}): {', '.join(f'`{name}`' for name in sorted(names))}: {why}."


def main() -> int:
    """Write or compare; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is another one")
    options = parser.parse_args()
    text = page()
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not what the rows say: run python -m tools.pulsar_admin_page", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
