"""``geminga`` and ``python -m geminga``: the command, or what is missing for it.

``--version`` is answered here: nothing of the command line is loaded for it.
"""

from __future__ import annotations

import codecs
import io
import sys
from typing import Final, NoReturn

#: The extra with all that a command needs, by its first word; of the others: ``server``.
_EXTRAS: Final = {
    "autorecovery": "zookeeper",
    "bookie": "zookeeper",
    "broker": "zookeeper",
    "client": "cli",
    "cluster": "zookeeper",
    "initialize-cluster-metadata": "zookeeper",
    "lake": "cli",
    "metadata": "zookeeper",
    "perf": "cli",
    "pipeline": "spark",
}
#: Words for which Typer is not loaded.
_ADMINISTRATION: Final = frozenset({"admin", "completion", "context", "pulsar-admin"})


def escape_what_is_not_encoded() -> None:
    """Have what standard output can not encode written as ``\\u2192``, as in JSON, which stays JSON so."""
    codecs.register_error("json", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="json")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def main() -> None:
    """Entry point of the command; exits with its code."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from geminga.app.lifecycle.paragraphs import open_closed_streams

        open_closed_streams()
    escape_what_is_not_encoded()
    if sys.argv[1:] == ["--version"]:
        from geminga.version import version_line

        print(version_line())
        raise SystemExit(0)
    try:
        _run()
    except KeyboardInterrupt:
        # While something was loaded, or outside of what ends by itself: as of any program that SIGINT ends.
        raise SystemExit(130) from None


def _run() -> NoReturn:
    try:
        if len(sys.argv) > 1 and sys.argv[1] in _ADMINISTRATION:
            from geminga.app.administration.main import main as administer

            administer(sys.argv[1:])
        from geminga.app.commands.cli import main as run

        run()
    except ImportError as error:
        from geminga.model.extras import missing_extra

        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        missing = missing_extra(error, f"geminga {command}".rstrip(), _EXTRAS.get(command, "server"))
        if missing is None:
            raise
        print(f"geminga: {missing}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
