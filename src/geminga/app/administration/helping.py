"""Help: groups, commands of a group, options of a command. The calls of geminga.admin tell what a command does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from geminga.app.administration.arguments import COMMON
from geminga.app.administration.command import Command, Option
from geminga.app.administration.groups import GROUPS, UNBUILT, commands_of
from geminga.app.administration.units import KINDS, TOLD

_COMMON: Final = {
    "admin_url": "http://host:port of a broker (GEMINGA_ADMIN_URL)",
    "context": "where to ask, and as whom: see `geminga context`",
    "client_conf": "a client.conf of Pulsar's (PULSAR_CLIENT_CONF)",
    "auth_plugin": "token, tls, basic, oauth2, or Pulsar's class",
    "auth_params": "its parameters",
    "trust": "PEM: whose certificates to trust",
    "insecure": "take any certificate",
    "checks_name": "the certificate must name the host (so it is)",
    "checks_no_name": "it need not",
    "provider": "of Java; it has no effect",
    "timeout": "how long to wait for an answer",
    "json": "print JSON",
    "output": "how to print",
    "dry_run": "print the request, and change nothing",
    "yes": "do not ask before what can not be undone",
    "help": "this",
}
#: Of commands that are more than one request, and of those for which no call is built.
_OWN: Final = {
    "list-topics": "Topics of a namespace, partitions one by one.",
    "list-partitioned": "Partitioned topics of a namespace.",
    "partitioned-lookup": "The broker of each partition.",
    "delete-topics": "Delete a topic, those of a file, or those that a regular expression fits.",
    "create-subscription": "Make a subscription.",
    "subscription-properties": "Say this of a subscription, and nothing else.",
    "expire-messages": "Acknowledge what is older than so long, or all up to a message.",
    "reset-cursor": "Go to a message, or to what was published so long ago.",
    "create-partitioned": "Make a topic with partitions.",
    "peek-messages": "Messages that a subscription has to read next.",
    "offload": "Move all but the newest ledgers to the lake.",
    "wait-offload": "How far moving ledgers to the lake is.",
    "wait-compaction": "What became of the last compaction, since the topic was loaded; -w waits for its end.",
    "create-shadow": "Make a topic that shows what is in another.",
    "shadow-source": "The topic that it shows.",
    "get-schema": "The newest schema, one version, or all.",
    "extract-schema": "Not built: it runs a class of Java.",
    "create-namespace": "Make a namespace.",
    "unload-namespace": "Have bundles served anew.",
    "split-bundle": "Cut a bundle.",
    "clear-backlog": "Acknowledge all.",
    "unsubscribe": "Delete the subscriptions of a name.",
    "offload-threshold": "Set how much bookies keep before ledgers go to the lake.",
    "get-offload-threshold": "How much bookies keep before ledgers go to the lake.",
    "get-rate": "How fast messages go to the consumers of one subscription, or of each.",
    "set-rate": "Set how fast they go.",
    "remove-rate": "Set it no more.",
    "create-tenant": "Make a tenant.",
    "update-tenant": "Give it other administrators and clusters.",
    "create-cluster": "Make a cluster known.",
    "update-cluster": "Change its addresses.",
    "delete-cluster": "Know it no more; with --all, without what is in it alone.",
    "list-clusters": "Names of clusters.",
    "set-isolation": "Set which brokers serve which namespaces.",
    "get-quota": "What is assumed of a bundle's load.",
    "set-quota": "Assume this of it.",
}
_VERBS: Final = {"GET": "", "POST": "Set: ", "PUT": "Set: ", "DELETE": "Remove: "}


def general(program: str) -> str:
    """All groups."""
    width = max(map(len, GROUPS))
    lines = [f"Usage: {program} [OPTIONS] GROUP COMMAND ...", "", "The commands of pulsar-admin, at a broker.", ""]
    lines += [f"  {name:<{width}}  {text}" for name, text in GROUPS.items()]
    lines += ["", f"Not built: {', '.join(UNBUILT)}.", "", "Options, at any place:", *_common()]
    return "\n".join(lines)


def of_group(program: str, group: str) -> str:
    """The commands of one."""
    commands = commands_of(group)
    width = max(map(len, commands))
    lines = [f"Usage: {program} {group} COMMAND ...", "", f"{GROUPS[group]}.", ""]
    texts = texts_of(list(commands.values()))
    return "\n".join([*lines, *(f"  {name:<{width}}  {texts[name]}" for name in sorted(commands))])


def of_command(program: str, command: Command) -> str:
    """Its places and options."""
    places = " ".join(f"[{name[:-1].upper()}]" if name[-1] == "?" else name.upper() for name in command.places)
    lines = [f"Usage: {program} {command.words} {places + ' ' if places else ''}[OPTIONS]", ""]
    lines += [texts_of([command])[command.name]]
    if command.destroys:
        lines += ["It can not be undone, and asks first."]
    if command.options:
        lines += ["", "Options:", *_rows([(_names(one), _told(one)) for one in command.options])]
    return "\n".join([*lines, "", "Options of all commands:", *_common(command)])


def nearest(word: str, known: Sequence[str]) -> str:
    """``: is it ...?``, or nothing."""
    near = get_close_matches(word, known, 1)
    return f": is it {near[0]}?" if near else ""


def texts_of(commands: Sequence[Command]) -> dict[str, str]:
    """What each does, by name."""
    from geminga.admin.calls.nouns import NOUNS, POLICY_SETS

    calls = {(call.method, call.path): call.text for noun in NOUNS for call in noun.calls}
    policies: dict[str, str] = {}
    for one in POLICY_SETS:
        owner = "{topic}/" if one.owner == "topic" else "namespaces/{namespace}/"
        policies |= {owner + policy.path: policy.text for policy in one.policies}
    found = {}
    for command in commands:
        path = command.path.replace("{cluster?}", "{cluster}")
        text = _OWN.get(command.function) or calls.get((command.method, path))
        if text is None and path in policies:
            text = _VERBS[command.method] + policies[path]
        found[command.name] = text or "Not built: the broker refuses it."
    return found


def _common(command: Command | None = None) -> Iterator[str]:
    taken = {name for one in command.options for name in one.names} if command is not None else set()
    shown = [(_names(one, taken), _COMMON[one.key]) for one in COMMON if not set(one.names) <= taken]
    return _rows(shown)


def _rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = min(max(len(names) for names, _ in rows), 48)
    for names, text in rows:
        yield f"  {names:<{width}}  {text}".rstrip()


def _names(option: Option, taken: set[str] | frozenset[str] = frozenset()) -> str:
    names = ", ".join(name for name in sorted(option.names, key=len) if name not in taken)
    value = option.kind if "/" in option.kind else KINDS[option.kind][1] if option.kind in KINDS else option.kind
    return f"{names} {value}" if option.takes_value else names


def _told(option: Option) -> str:
    parts = [TOLD.get(option.kind, "")]
    if option.need == "!":
        parts.append("must be given")
    elif option.need:
        parts.append("one of those with this note must be given")
    if option.default is not None and option.takes_value:
        parts.append(f"unless given: {option.default}")
    return "; ".join(part for part in parts if part)
