"""``python -m geminga``: the same program as the ``geminga`` command."""

from geminga.app.cli import main

if __name__ == "__main__":
    main()
