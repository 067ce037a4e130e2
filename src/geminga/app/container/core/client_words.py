"""What ``bin/pulsar-client`` and ``bin/pulsar-perf`` mean to ``geminga client`` and ``geminga perf``. Pure.

Where the cluster is and who asks comes from the options before the command, else from ``client.conf``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from geminga.app.container.core.options import GivenOptions, options, read_options
from geminga.app.container.core.words import Call
from geminga.model.errors import ConfigurationError

_GLOBAL: Final = options(
    """
    url: --url -u --service-url
    --auth-plugin: --auth-plugin --auth_plugin
    --auth-params: --auth-params --auth_params
    --tls-trust-cert-path: --tlsTrustCertsFilePath --tls-trust-cert-path
    : --listener-name --proxy-url --proxy-protocol --memory-limit -ml
    """
)
#: Options of ``geminga client``'s group, by the key of ``client.conf``.
_OF_FILE: Final = {
    "authPlugin": "--auth-plugin",
    "authParams": "--auth-params",
    "tlsTrustCertsFilePath": "--tls-trust-cert-path",
}
_PRODUCE: Final = {
    **options(
        """
        --messages: -m --messages
        --files: -f --files
        --num-produce: -n --num-produce
        --key: -k --key
        --properties: -p --properties
        --compression: -z --compression
        separator: -s --separator
        """
    ),
    **options("--disable-batching: -db --disable-batching\n: -dr --disable-replication", takes_value=False),
}
_CONSUME: Final = {
    **options(
        """
        --subscription-name: -s --subscription-name
        --num-messages: -n --num-messages
        --subscription-type: -t --subscription-type
        --subscription-position: -p --subscription-position
        mode: -m --subscription-mode
        : -q --queue-size -mc --max_chunked_msg -st --schema-type
        """
    ),
    **options(
        "--regex: --regex\n--hex: --hex\n--hide-content: --hide-content\n"
        ": -pm --pool-messages -ac -ekv --print-metadata",
        takes_value=False,
    ),
}
#: What Pulsar's command splits ``--messages`` at.
SEPARATOR: Final = ","


def client_call(words: Sequence[str], conf: Mapping[str, str]) -> Call:
    """``bin/pulsar-client WORDS``, with what ``client.conf`` says; raises ConfigurationError."""
    before = read_options("bin/pulsar-client", words, _GLOBAL, ends_at_word=True)
    command, rest = (before.rest[0], before.rest[1:]) if before.rest else ("", ())
    program = f"bin/pulsar-client {command}"
    group = _group("client", before, conf)
    url = before.last("url") or conf.get("brokerServiceUrl", "")
    if command == "produce":
        said = read_options(program, rest, _PRODUCE)
        arguments = [*group, "produce", *_topic(program, said), *_given(said, "separator")]
    elif command == "consume":
        said = read_options(program, rest, _CONSUME)
        arguments = [*group, "consume", *_topic(program, said), *_given(said, "mode")]
        if said.last("mode", "Durable").lower() == "nondurable":
            arguments.append("--non-durable")
    else:
        raise ConfigurationError(f"{program}: expected one of consume, produce")
    notes = (f"{program}: {', '.join(said.idle)}: without effect here",) if said.idle else ()
    return Call((*arguments, *(("--url", url) if url else ())), notes=notes)


def perf_call(words: Sequence[str], conf: Mapping[str, str]) -> Call:
    """``bin/pulsar-perf produce|consume ...``: options as ``geminga perf`` has them; raises ConfigurationError."""
    command, rest = (words[0], list(words[1:])) if words else ("", [])
    if command not in ("produce", "consume"):
        raise ConfigurationError(f"bin/pulsar-perf {command}: expected one of consume, produce")
    before: dict[str, str] = {}
    passed: list[str] = []
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        option = _GLOBAL.get(name)
        if option is None:
            passed.append(f"{name}{equals}{value}")
        elif not equals and not rest:
            raise ConfigurationError(f"bin/pulsar-perf {command}: {name} without its value")
        else:
            before[option.name] = value if equals else rest.pop(0)
    url = before.get("url") or conf.get("brokerServiceUrl", "")
    said = GivenOptions({name: (value,) for name, value in before.items()}, (), ())
    return Call((*_group("perf", said, conf), command, *passed, *(("--url", url) if url else ())))


def _group(name: str, said: GivenOptions, conf: Mapping[str, str]) -> list[str]:
    """``geminga client`` and its options of credentials; those of the command line win as a whole."""
    given = [word for option in _OF_FILE.values() if said.has(option) for word in (option, said.last(option))]
    if not given:
        given = [word for key, option in _OF_FILE.items() if conf.get(key) for word in (option, conf[key])]
    return [name, *given]


def _topic(program: str, said: GivenOptions) -> tuple[str, ...]:
    if len(said.rest) != 1:
        raise ConfigurationError(f"{program}: expected one topic, not {' '.join(said.rest) or 'none'}")
    return said.rest


def _given(said: GivenOptions, *own: str) -> list[str]:
    separator = said.last("separator", SEPARATOR)
    found = []
    for name, values in said.values.items():
        if name in own:
            continue
        for value in values:
            if value == "true" and name in _FLAGS:
                found.append(name)
            elif name == "--messages" and separator:
                found += [word for one in value.split(separator) for word in (name, one)]
            else:
                found += [name, value]
    return found


_FLAGS: Final = frozenset({"--disable-batching", "--regex", "--hex", "--hide-content"})
