"""What the commands of Pulsar's image mean to ``geminga``. Pure: words in, a :class:`Call` out.

Options are those of Pulsar 4.2's ``bin/pulsar`` and BookKeeper 4.17's ``bin/bookkeeper shell``. One that concerns what
is built otherwise here (ports of a ZooKeeper inside a standalone, functions) is passed over and named in a line; one
that asks for something that is not built is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.app.container.core.options import GivenOptions, options, read_options
from geminga.model.errors import ConfigurationError

#: Ready to be used, in the words of Pulsar; testcontainers for Go waits for this line.
POLICIES_LINE: Final = "Successfully updated the policies on namespace public/default"
#: Where the health of a broker is asked that asks who clients are, which a health check can not say: open, 503 until it
#: serves; then 200, or 404 where the file of ``statusFilePath`` is not there: load balancers go elsewhere, and it is no
#: illness.
STATUS_PATH: Final = "/status.html"
#: Below the volume.
STANDALONE_DATA: Final = "data/standalone"
BOOKIE_DATA: Final = "data/bookkeeper"


class Call(NamedTuple):
    """What is to run."""

    #: Of ``geminga``; empty: see ``shell``.
    arguments: tuple[str, ...]
    #: Of the file that a server reads, below the home or absolute; empty: none.
    conf: str = ""
    #: ``standalone``, ``broker``, ``bookie``, ``autorecovery``; empty: no server.
    role: str = ""
    #: Lines for standard error.
    notes: tuple[str, ...] = ()
    #: A directory whose contents are to be removed first.
    wipes: str = ""
    #: Words of ``bin/pulsar zookeeper-shell``.
    shell: tuple[str, ...] | None = None
    #: What is printed of what was found.
    asks_instance_id: bool = False


_STANDALONE_VALUES: Final = options(
    """
    config: -c --config
    advertised: -a --advertised-address
    bookies: --num-bookies
    : --zookeeper-dir --zookeeper-port --bookkeeper-dir --bookkeeper-port --stream-storage-port --metadata-dir
    : --metadata-url -fwc --functions-worker-conf
    """
)
_STANDALONE_FLAGS: Final = options(
    """
    wipe: --wipe-data
    only: --only-broker
    no_functions: -nfw --no-functions-worker
    : -nss --no-stream-storage
    """,
    takes_value=False,
)
_BROKER: Final = {
    **options("config: -bc --broker-conf -c --config\n: -fwc --functions-worker-conf -bk --bookie-conf"),
    **options(
        "bookie: -rb --run-bookie\nrecovery: -ra --run-bookie-autorecovery\nfunctions: -rfw --run-functions-worker",
        takes_value=False,
    ),
}
_PROXY: Final = options(
    "config: -c --config\nmetadata: -md --metadata-store -zk --zookeeper-servers\n"
    ": -cms --configuration-metadata-store -gzk --global-zookeeper-servers -cs --configuration-store-servers"
)
_BOOKIE: Final = options("config: -c --conf")
_INITIALIZE_OLD: Final = {
    "-zk": "--metadata-store",
    "--zookeeper": "--metadata-store",
    "-cs": "--configuration-metadata-store",
    "--configuration-store": "--configuration-metadata-store",
}
_NO_FUNCTIONS: Final = "functions are not built: none is started (Pulsar's option --no-functions-worker says the same)"
_ELSEWHERE: Final = {
    "websocket": "brokers serve WebSockets themselves: webSocketServiceEnabled=true",
    "functions-worker": "functions are not built",
    "zookeeper": "there is no ZooKeeper in this image: run ZooKeeper's own (docker.io/library/zookeeper), "
    "and name it in metadataStoreUrl",
    "configuration-store": "there is no ZooKeeper in this image: run ZooKeeper's own (docker.io/library/zookeeper)",
    "sql": "Pulsar SQL is not built; see geminga's Spark connector",
    "sql-worker": "Pulsar SQL is not built; see geminga's Spark connector",
    "initialize-transaction-coordinator-metadata": "there is nothing to do: initialize-cluster-metadata makes the "
    "transaction coordinators (--initial-num-transaction-coordinators)",
}


def pulsar_call(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    """``bin/pulsar WORDS``; raises ConfigurationError."""
    command, rest = (words[0], words[1:]) if words else ("", ())
    if command in _COMMANDS:
        return _COMMANDS[command](rest, environment)
    if command in _ELSEWHERE:
        raise ConfigurationError(f"bin/pulsar {command}: {_ELSEWHERE[command]}")
    raise ConfigurationError(f"bin/pulsar {command}: expected one of {', '.join(sorted(_COMMANDS))}")


def _standalone(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    program = "bin/pulsar standalone"
    said = read_options(program, words, {**_STANDALONE_VALUES, **_STANDALONE_FLAGS})
    _no_more(program, said)
    if said.has("only"):
        raise ConfigurationError(f"{program} --only-broker: not built; expected bin/pulsar broker")
    conf = said.last("config") or _conf(environment, "PULSAR_STANDALONE_CONF", "conf/standalone.conf")
    arguments = ["standalone", "--data", STANDALONE_DATA, "--config", conf, "--announce", POLICIES_LINE]
    if said.has("bookies"):
        arguments += ["--bookies", said.last("bookies")]
    if said.has("advertised"):
        arguments += ["--set", f"advertisedAddress={said.last('advertised')}"]
    notes = _notes(program, said)
    if not said.has("no_functions"):
        notes.append(_NO_FUNCTIONS)
    wipes = STANDALONE_DATA if said.has("wipe") else ""
    return Call((*arguments, *_log(environment)), conf, "standalone", tuple(notes), wipes)


def _broker(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    program = "bin/pulsar broker"
    said = read_options(program, words, _BROKER)
    _no_more(program, said)
    if said.has("bookie"):
        raise ConfigurationError(f"{program} --run-bookie: not built; expected a process of its own, bin/pulsar bookie")
    notes = _notes(program, said)
    if said.has("recovery"):
        notes.append("auto-recovery is a process of its own here: bin/pulsar autorecovery")
    if said.has("functions"):
        notes.append(_NO_FUNCTIONS)
    conf = said.last("config") or _conf(environment, "PULSAR_BROKER_CONF", "conf/broker.conf")
    return Call(("broker", "--config", conf, *_log(environment)), conf, "broker", tuple(notes))


def _bookie(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    said = read_options("bin/pulsar bookie", words, _BOOKIE)
    _no_more("bin/pulsar bookie", said)
    conf = said.last("config") or bookkeeper_conf(environment)
    return Call(("bookie", "--data", BOOKIE_DATA, "--config", conf, *_log(environment)), conf, "bookie")


def _proxy(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    program = "bin/pulsar proxy"
    said = read_options(program, words, _PROXY)
    _no_more(program, said)
    conf = said.last("config") or _conf(environment, "PULSAR_PROXY_CONF", "conf/proxy.conf")
    metadata = said.last("metadata")
    store = ("--metadata", _store(metadata)) if metadata else ()
    return Call(("proxy", "--config", conf, *store, *_log(environment)), conf, "proxy", tuple(_notes(program, said)))


def _autorecovery(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    said = read_options("bin/pulsar autorecovery", words, _BOOKIE)
    _no_more("bin/pulsar autorecovery", said)
    conf = said.last("config") or bookkeeper_conf(environment)
    return Call(("autorecovery", "--config", conf, *_log(environment)), conf, "autorecovery")


def _initialize(words: Sequence[str], _: Mapping[str, str]) -> Call:
    arguments, is_server = ["initialize-cluster-metadata"], False
    for word in words:
        name, equals, value = word.partition("=")
        if is_server:
            arguments.append(_store(word))
        elif name in _INITIALIZE_OLD:
            arguments += [_INITIALIZE_OLD[name], *([_store(value)] if equals else [])]
        else:
            arguments.append(word)
        is_server = not is_server and name in _INITIALIZE_OLD and not equals
    return Call(tuple(arguments))


def _store(servers: str) -> str:
    """A metadata store by ZooKeeper's servers, as older options name them."""
    return servers if servers.startswith("zk:") else f"zk:{servers}"


def _tokens(words: Sequence[str], _: Mapping[str, str]) -> Call:
    return Call(("tokens", *words))


def _shell(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    return Call((), conf=bookkeeper_conf(environment), shell=tuple(words))


def _version(words: Sequence[str], _: Mapping[str, str]) -> Call:
    if words:
        raise ConfigurationError(f"bin/pulsar version: expected nothing behind it, not {' '.join(words)}")
    return Call(("--version",))


_COMMANDS: Final[Mapping[str, Callable[[Sequence[str], Mapping[str, str]], Call]]] = {
    "autorecovery": _autorecovery,
    "bookie": _bookie,
    "broker": _broker,
    "initialize-cluster-metadata": _initialize,
    "proxy": _proxy,
    "standalone": _standalone,
    "tokens": _tokens,
    "version": _version,
    "zookeeper-shell": _shell,
}


def bookkeeper_conf(environment: Mapping[str, str]) -> str:
    """The file of a bookie, below the home."""
    return _conf(environment, "PULSAR_BOOKKEEPER_CONF", _conf(environment, "BOOKIE_CONF", "conf/bookkeeper.conf"))


def _conf(environment: Mapping[str, str], variable: str, default: str) -> str:
    return environment.get(variable) or default


def _log(environment: Mapping[str, str]) -> tuple[str, ...]:
    """``PULSAR_LOG_LEVEL`` (log4j's words) and ``PULSAR_LOG_FORMAT`` as options.

    A level between ours is that next to it; one that is none is passed over, as log4j does.
    """
    level = environment.get("PULSAR_LOG_LEVEL", "").lower()
    known = {"trace": "debug", "debug": "debug", "info": "info", "warn": "warning", "warning": "warning"}
    known |= {"error": "error", "fatal": "error", "off": "error"}
    form = environment.get("PULSAR_LOG_FORMAT", "")
    return (
        *(("--log-level", known[level]) if level in known else ()),
        *(("--log-format", form.lower()) if form else ()),
    )


def _notes(program: str, said: GivenOptions) -> list[str]:
    return [f"{program}: {', '.join(said.idle)}: without effect here"] if said.idle else []


def _no_more(program: str, said: GivenOptions) -> None:
    if said.rest:
        raise ConfigurationError(f"{program}: expected options, not {' '.join(said.rest)}")


def below(home: str, path: str) -> str:
    """An absolute path: ``path`` below ``home`` unless it is one."""
    return posixpath.normpath(posixpath.join(home, path))
