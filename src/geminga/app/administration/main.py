"""``geminga admin``, ``pulsar-admin``, ``context`` and ``completion``: from words to an exit code.

0: done; 1: the broker refused or did not answer, or part of it failed; 2: words that make no command, or a question
that nobody could be asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from geminga.app.administration.arguments import UsageError, given, leading
from geminga.app.administration.command import Command
from geminga.app.administration.contexts import ContextError, chosen
from geminga.app.administration.groups import GROUPS, UNBUILT, commands_of
from geminga.app.lifecycle.paragraphs import give_up_output, no_text
from geminga.app.lifecycle.terminal_text import shown_on

#: The first words that are for this package.
WORDS: Final = frozenset({"admin", "completion", "context", "pulsar-admin"})


def main(words: Sequence[str]) -> NoReturn:
    """Run what ``geminga`` was given; exits with its code."""
    try:
        code = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        # Whether a change was made is not known.
        print(file=sys.stderr)
        code = 1
    except OSError as error:
        # Nothing more is to be said at the end either.
        give_up_output()
        # Who reads may have seen enough.
        code = 1 if isinstance(error, BrokenPipeError) else _failed(str(error) or type(error).__name__, 1)
    raise SystemExit(code)


def run(words: Sequence[str]) -> int:
    """The exit code; SystemExit from a question."""
    first, rest = words[0], words[1:]
    try:
        if first == "context":
            from geminga.app.administration.context_commands import run_context

            return run_context(rest, os.environ)
        if first == "completion":
            from geminga.app.administration.completing import run_completion

            return run_completion(rest)
        return _administer(first, rest)
    except UnicodeEncodeError as error:
        return _failed(no_text(error), 2)
    except (UsageError, ContextError) as error:
        return _failed(str(error), 2)


def _failed(sentence: str, code: int) -> int:
    print(shown_on(sys.stderr, f"geminga: {' '.join(sentence.split())}"), file=sys.stderr)
    return code


def _administer(program: str, words: Sequence[str]) -> int:
    if words and words[0] in ("-v", "--version"):
        from geminga.version import __version__

        print(f"geminga {__version__}")
        return 0
    common, rest = leading(words)
    name = f"geminga {program}"
    if not rest or (rest[0] == "help" and len(rest) == 1):
        from geminga.app.administration.helping import general

        print(general(name))
        return 0 if rest or common.get("help") else 2
    group = rest[0]
    if group in UNBUILT:
        return _failed(f"{group}: {UNBUILT[group]} is not built, in commands and brokers alike", 1)
    if group not in GROUPS:
        from geminga.app.administration.helping import nearest

        raise UsageError(f"there is no group {group}{nearest(group, list(GROUPS)) or ';'} `{name} --help` lists them")
    commands = commands_of(group)
    if common.get("help") or len(rest) == 1 or rest[1] in ("-h", "--help", "help"):
        from geminga.app.administration.helping import of_group

        print(of_group(name, group))
        return 0 if common.get("help") or len(rest) > 1 else 2
    if rest[1] not in commands:
        from geminga.app.administration.helping import nearest

        near = nearest(rest[1], list(commands)) or ";"
        raise UsageError(f"there is no command {group} {rest[1]}{near} `{name} {group} --help` lists them")
    return _carry_out(program, commands[rest[1]], rest[2:], common)


def _carry_out(program: str, command: Command, words: Sequence[str], common: Mapping[str, Any]) -> int:
    try:
        said = given(command, words, common)
    except UsageError as error:
        raise UsageError(f"{command.words}: {error}; `geminga {program} {command.words} --help` tells more") from None
    if said.common.get("help"):
        from geminga.app.administration.helping import of_command

        print(of_command(f"geminga {program}", command))
        return 0
    from geminga.admin.errors import AdminError
    from geminga.app.administration.asking import answered
    from geminga.app.administration.printing import printed
    from geminga.app.administration.session import FailedError
    from geminga.model.errors import GemingaError, InvalidTopicNameError

    how = said.common.get("output") or ("json" if said.common.get("json") else "")
    try:
        value = answered(command, said, chosen(said.common, os.environ), asks=program != "pulsar-admin")
    except AdminError as error:
        if program == "pulsar-admin" and error.status:
            print(shown_on(sys.stderr, f"{error.reason}\n\nReason: {error.reason}"), file=sys.stderr)
            return 1
        return _failed(f"{command.words}: {error}", 1)
    except InvalidTopicNameError as error:
        raise UsageError(f"{command.words}: {error}") from None
    except (FailedError, GemingaError, OSError) as error:
        return _failed(f"{command.words}: {error}", 1)
    text = printed(command, said, value, how or ("pulsar" if program == "pulsar-admin" else "table"))
    if text:
        print(shown_on(sys.stdout, text))
    return 0
