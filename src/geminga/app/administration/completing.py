"""Completion for shells: scripts that ask ``geminga completion words``, and the words that fit there.

Names of tenants, namespaces and topics are asked from the broker of the context, which has a short time for it; without
an answer there are none. Nothing is said about errors: the operator is in the middle of a line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from geminga.app.administration.arguments import COMMON, UsageError, leading
from geminga.app.administration.command import Command
from geminga.app.administration.groups import GROUPS, commands_of

if TYPE_CHECKING:
    from geminga.admin._request import Caller

#: Seconds that a broker may take.
LIMIT_S: Final = 1.0
_ADMIN: Final = ("admin", "pulsar-admin")
_CONTEXT: Final = ("delete", "list", "set", "show", "use")
#: ``COMP_WORDBREAKS`` of bash breaks at colons, of which topics have one: what is before it stays out of the answer.
_BASH: Final = """\
_geminga() {
    local line IFS=$'\\n' current="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=($(geminga completion words -- "$current" 2>/dev/null))
    local word="${current##* }"
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        local head="${word%"${word##*:}"}" index
        for index in "${!COMPREPLY[@]}"; do
            COMPREPLY[index]="${COMPREPLY[index]#"$head"}"
        done
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == */ ]]; then
        compopt -o nospace
    fi
}
complete -F _geminga geminga
"""
_ZSH: Final = """\
#compdef geminga
_geminga() {
    local -a found open closed
    found=("${(@f)$(geminga completion words -- "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    open=(${(M)found:#*/}) closed=(${found:#*/})
    (( $#open )) && compadd -S '' -a open
    [[ -n "$closed" ]] && compadd -a closed
}
compdef _geminga geminga
"""
_FISH: Final = """\
function __geminga_words
    geminga completion words -- (commandline -cp | string collect) 2>/dev/null
end
complete -c geminga -f -a '(__geminga_words)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run_completion(words: Sequence[str]) -> int:
    """Print a shell's script, or the words that fit at the end of a line. Raises UsageError."""
    if len(words) == 3 and words[0] == "words" and words[1] == "--":
        for word in fitting(words[2]):
            print(word)
        return 0
    if len(words) == 1 and words[0] in SCRIPTS:
        print(SCRIPTS[words[0]], end="")
        return 0
    raise UsageError(f"expected geminga completion {'|'.join(SCRIPTS)}: a script for the shell to read")


def fitting(line: str) -> list[str]:
    """Words that the last one of a line may become, sorted."""
    words = line.split()[1:]
    start = "" if line.endswith(" ") or not words else words.pop()
    return sorted({word for word in _words(words, start) if word.startswith(start)})


def _words(words: list[str], start: str) -> Iterator[str]:
    if not words:
        yield from _first()
    elif words[0] == "completion":
        yield from SCRIPTS if len(words) == 1 else ()
    elif words[0] == "context":
        yield from _context_words(words[1:])
    elif words[0] in _ADMIN:
        yield from _admin_words(words[1:], start)


def _first() -> Iterable[str]:
    try:
        from geminga.app.commands.cli import known_words
    except ImportError:  # Typer is an extra, which these commands do without
        return (*_ADMIN, "completion", "context")
    return known_words()


def _context_words(words: list[str]) -> Iterator[str]:
    from geminga.app.administration.contexts import FIELDS, ContextError, all_of

    if not words:
        yield from _CONTEXT
    elif words[0] == "set" and len(words) > 1:
        yield from (f"--{field}" for field in FIELDS)
    elif words[0] != "list":
        try:
            yield from all_of(os.environ)
        except ContextError:
            return


def _admin_words(words: list[str], start: str) -> Iterator[str]:
    try:
        _, rest = leading(words)
    except UsageError:
        return
    if not rest:
        yield from (name for one in COMMON for name in one.names) if start.startswith("-") else GROUPS
        return
    commands = commands_of(rest[0])
    if len(rest) == 1:
        yield from commands
    elif rest[1] in commands:
        yield from _command_words(commands[rest[1]], rest[2:], start)


def _command_words(command: Command, words: list[str], start: str) -> Iterator[str]:
    options = (*command.options, *COMMON)
    before = next((one for one in options if words and words[-1] in one.names and one.takes_value), None)
    if before is not None:
        if "/" in before.kind:
            yield from before.kind.split("/")
        elif before.key in ("topic", "place", "source", "namespace", "tenant", "cluster"):
            yield from _names(before.key, start)
    elif start.startswith("-"):
        yield from (name for one in options for name in one.names if name not in words)
    else:
        taken = len([word for word in words if not word.startswith("-")])
        place = command.places[min(taken, len(command.places) - 1)] if command.places else ""
        yield from _names(place.rstrip("?"), start)


def _names(place: str, start: str) -> Iterator[str]:
    """Of tenants, clusters, namespaces and topics, asked from the broker."""
    from geminga.admin.errors import AdminError
    from geminga.app.administration.asking import caller_of
    from geminga.app.administration.contexts import ContextError, chosen
    from geminga.model.errors import GemingaError

    if place not in ("cluster", "namespace", "place", "source", "tenant", "topic"):
        return
    try:
        caller = caller_of(chosen({}, os.environ), LIMIT_S)
        try:
            yield from _asked(caller, place, start)
        finally:
            caller.close()
    except (AdminError, ContextError, GemingaError, UsageError, OSError, ValueError):
        return


def _asked(caller: Caller, place: str, start: str) -> Iterator[str]:
    import json

    from geminga.admin._paths import text

    def get(path: str) -> list[str]:
        found = json.loads(caller.request("GET", f"/admin/v2/{path}")[0])
        return [str(one) for one in found]

    domain, separator, rest = start.rpartition("://")
    tenant, slash, local = rest.partition("/")
    if place in ("cluster", "tenant"):
        yield from get(f"{place}s")
    elif not slash:
        yield from (f"{domain}{separator}{one}/" for one in get("tenants"))
        if not separator and place != "namespace":
            yield from ("persistent://", "non-persistent://")
    elif place == "namespace" or "/" not in local:
        end = "" if place == "namespace" else "/"
        yield from (f"{domain}{separator}{one}{end}" for one in get(f"namespaces/{text(tenant)}"))
    else:
        namespace = local.partition("/")[0]
        for kind in ("persistent", "non-persistent") if not domain else (domain,):
            for topic in get(f"{kind}/{text(tenant)}/{text(namespace)}"):
                yield topic if separator else topic.partition("://")[2]
