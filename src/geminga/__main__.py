"""``geminga`` and ``python -m geminga``: the command, or what is missing for it.

``--version`` is answered here: nothing of the command line is loaded for it.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the command; exits with its code."""
    if sys.argv[1:] == ["--version"]:
        from geminga import __version__

        print(f"geminga {__version__}")
        raise SystemExit(0)
    try:
        from geminga.app.cli import main as run
    except ImportError as error:
        from geminga.model.extras import missing_extra

        missing = missing_extra(error, "the geminga command", "server")
        if missing is None:
            raise
        print(f"geminga: {missing}", file=sys.stderr)
        raise SystemExit(1) from None
    run()


if __name__ == "__main__":
    main()
