"""What ``bin/bookkeeper`` means to ``geminga``. Pure, as ``words.py`` beside it.

============================================= =====================================================
``bookie``, ``autorecovery``                  the server
``shell whatisinstanceid``                    the cluster's id from ZooKeeper; 1 where there is none
``shell initnewcluster``, ``metaformat``      ``geminga bookie initnewcluster``, ``metaformat``
``shell bookieformat``, ``bookiesanity``      ``geminga bookie format``, ``sanity``
``shell decommissionbookie -bookieid ID``     ``geminga autorecovery decommission ID``
============================================= =====================================================

Of the shell's own options ``-conf FILE`` is read. What asks a question in BookKeeper asks none here: it does nothing
without ``-force`` where something would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from geminga.app.container.core.options import options, read_options
from geminga.app.container.core.words import BOOKIE_DATA, Call, bookkeeper_conf, pulsar_call
from geminga.model.errors import ConfigurationError

_SHELL: Final = options("config: -conf --conf")
_FORMAT: Final = options(
    "force: -f -force --force\ndelete: -d -deleteCookie --deleteCookie\n: -n -nonInteractive --nonInteractive",
    takes_value=False,
)
_DECOMMISSION: Final = options("bookie: -bookieid --bookieid")
_SERVERS: Final = ("bookie", "autorecovery")


def bookkeeper_call(words: Sequence[str], environment: Mapping[str, str]) -> Call:
    """``bin/bookkeeper WORDS``; raises ConfigurationError."""
    command, rest = (words[0], words[1:]) if words else ("", ())
    if command in _SERVERS:
        return pulsar_call(words, environment)
    if command != "shell":
        raise ConfigurationError(f"bin/bookkeeper {command}: expected one of {', '.join((*_SERVERS, 'shell'))}")
    said = read_options("bin/bookkeeper shell", rest, _SHELL, ends_at_word=True)
    conf = said.last("config") or bookkeeper_conf(environment)
    return _shell(said.rest, conf)


def _shell(words: Sequence[str], conf: str) -> Call:
    command, rest = (words[0], words[1:]) if words else ("", ())
    program = f"bin/bookkeeper shell {command}"
    if command == "decommissionbookie":
        bookie_id = read_options(program, rest, _DECOMMISSION).last("bookie")
        if not bookie_id:
            raise ConfigurationError(f"{program}: expected -bookieid ID")
        return Call(("autorecovery", "decommission", bookie_id, "--config", conf), conf)
    said = read_options(program, rest, _FORMAT)
    if said.rest:
        raise ConfigurationError(f"{program}: expected options, not {' '.join(said.rest)}")
    of_data = ("--data", BOOKIE_DATA, "--config", conf)
    force = ("--force",) if said.has("force") else ()
    match command:
        case "whatisinstanceid":
            return Call((), conf, asks_instance_id=True)
        case "initnewcluster":
            return Call(("bookie", "initnewcluster", "--config", conf), conf)
        case "metaformat":
            return Call(("bookie", "metaformat", "--config", conf, *force), conf)
        case "bookieformat":
            cookie = ("--delete-cookie",) if said.has("delete") else ()
            return Call(("bookie", "format", *of_data, *force, *cookie), conf)
        case "bookiesanity":
            return Call(("bookie", "sanity", *of_data), conf)
    raise ConfigurationError(
        f"{program}: expected one of bookieformat, bookiesanity, decommissionbookie, initnewcluster, metaformat, "
        "whatisinstanceid"
    )
