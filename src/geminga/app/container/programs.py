"""The programs of the image, each named as Pulsar's: ``python -m geminga.app.container NAME WORDS``.

They decide by ``core/`` what is meant, read the files of the image, and then are the command of ``geminga`` that it is:
in this process, so that signals reach it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from geminga.app.container.config_copies import Image, apply_to_file, config_file, image_of, remember
from geminga.app.container.core.bookkeeper_words import bookkeeper_call
from geminga.app.container.core.client_words import client_call, perf_call
from geminga.app.container.core.doors import health_url, open_doors
from geminga.app.container.core.words import BOOKIE_DATA, STANDALONE_DATA, Call, below, pulsar_call
from geminga.app.lifecycle.paragraphs import print_paragraph
from geminga.model.errors import ConfigurationError, DataDirectoryError, GemingaError

#: Under which name the health check's URL is kept.
HEALTH: Final = "health"
CLIENT_CONF: Final = "conf/client.conf"
#: Of variables for a file that nothing here reads.
_FUNCTIONS_PREFIX: Final = "PF_"


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the program that the first word names; exits with its code."""
    given = sys.argv[1:] if words is None else list(words)
    name, rest = (given[0], given[1:]) if given else ("", [])
    try:
        if name not in _PROGRAMS:
            print_paragraph(f"{name}: expected one of {', '.join(sorted(_PROGRAMS))}")
            raise SystemExit(2)
        raise SystemExit(_PROGRAMS[name](rest))
    except (GemingaError, OSError) as error:
        print_paragraph(str(error))
        raise SystemExit(1) from None


def arguments_of(call: Call, image: Image, environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """What ``geminga`` is to be called with, and the URL of a server's health. Says what is to be said."""
    conf = config_file(image, call.conf) if call.conf else ""
    for note in call.notes:
        print_paragraph(note)
    places = {call.conf: conf, **{name: below(image.home, name) for name in (STANDALONE_DATA, BOOKIE_DATA)}}
    arguments = tuple(places.get(word, word) for word in call.arguments)
    if not call.role:
        return arguments, ""
    # Not at the top: apply-config-from-env.py runs before every server, and needs little.
    from geminga.app.configuration.config_sources import collect_entries

    values = {entry.key: entry.text for entry in collect_entries((conf,), environment)}
    doors = open_doors(call.role, values)
    for warning in doors.warnings:
        print_paragraph(warning)
    added = tuple(word for setting in doors.settings for word in ("--set", setting))
    return (*arguments, *added), health_url(call.role, values)


def _run(call: Call) -> int:
    environment = dict(os.environ)
    image = image_of(environment)
    if call.shell is not None or call.asks_instance_id:
        from geminga.app.container.zookeeper_shell import instance_id, run_shell

        conf = config_file(image, call.conf)
        return instance_id(conf, environment) if call.shell is None else run_shell(call.shell, conf, environment)
    arguments, health = arguments_of(call, image, environment)
    if call.wipes:
        wipe(below(image.home, call.wipes))
    if call.role:
        os.makedirs(below(image.home, "data"), exist_ok=True)
        remember(image, HEALTH, health)
    return _geminga(arguments)


def wipe(path: str) -> None:
    """Remove everything in a data directory. Raises DataDirectoryError if a process has it, and OSError.

    A broker that works in it, as the container's own does where this one was started beside it, would lose what it
    acknowledged.
    """
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except BlockingIOError:
        raise DataDirectoryError(
            f"--wipe-data: data directory {path} is in use by another process, and nothing of it was removed: stop "
            "that one first"
        ) from None
    finally:
        os.close(held)


def _geminga(arguments: Sequence[str]) -> NoReturn:
    from geminga.app.commands.cli import main as run

    sys.argv = ["geminga", *arguments]
    run()


def _pulsar(words: Sequence[str]) -> int:
    return _run(pulsar_call(words, os.environ))


def _bookkeeper(words: Sequence[str]) -> int:
    return _run(bookkeeper_call(words, os.environ))


def _client(words: Sequence[str]) -> int:
    return _run(client_call(words, _client_conf()))


def _perf(words: Sequence[str]) -> int:
    return _run(perf_call(words, _client_conf()))


def _admin(words: Sequence[str]) -> int:
    return _geminga(("pulsar-admin", *words))


def _client_conf() -> Mapping[str, str]:
    from geminga.app.configuration.config_sources import read_file

    image = image_of(os.environ)
    own = os.environ.get("PULSAR_CLIENT_CONF")
    path = config_file(image, own or CLIENT_CONF)
    if not own and not os.path.exists(path):
        return {}  # the options may say everything
    # One that is named or there, and can not be read, said where the cluster is and who asks: not passed over.
    return {entry.key: entry.text for entry in read_file(path)}


def _apply(words: Sequence[str]) -> int:
    """``apply-config-from-env.py FILE...``."""
    if not words:
        raise ConfigurationError("apply-config-from-env.py: expected FILE...")
    image = image_of(os.environ)
    for path in words:
        absolute = os.path.abspath(path)
        place, done = apply_to_file(image, absolute, os.environ)
        where = path if place == absolute else f"{path} is read-only: {place}"
        for line in done:
            print(f"[{where}] {line}", flush=True)
    return 0


def _yaml(words: Sequence[str]) -> int:
    """``gen-yml-from-env.py FILE...``: of the functions worker, which is not built; what asks for it is named."""
    asked = sorted(name for name in os.environ if name.startswith(_FUNCTIONS_PREFIX))
    if asked:
        print_paragraph(
            f"functions are not built: {', '.join(asked)} are without effect, {' '.join(words)} not written"
        )
    return 0


_PROGRAMS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "apply-config-from-env.py": _apply,
    "bookkeeper": _bookkeeper,
    "gen-yml-from-env.py": _yaml,
    "pulsar": _pulsar,
    "pulsar-admin": _admin,
    "pulsar-client": _client,
    "pulsar-perf": _perf,
}
