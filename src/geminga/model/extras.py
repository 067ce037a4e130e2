"""Which extra brings a package that is not installed: one sentence instead of a traceback.

``pip install geminga`` is the client; what else Geminga can do comes with an extra (``pyproject.toml``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from geminga.model.errors import LocalError

#: The top module of a package that comes with extras -> those that bring it, the least one first.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "bcrypt": ("crypto",),
    "cryptography": ("crypto",),
    "fastavro": ("avro", "server", "spark", "zookeeper"),
    "h11": ("server", "zookeeper"),
    "kazoo": ("zookeeper",),
    "numpy": ("spark",),
    "opentelemetry": ("otel",),
    "puresasl": ("sasl",),
    "pyarrow": ("lake", "spark"),
    "pyroaring": ("server", "zookeeper"),
    "pyspark": ("spark",),
    "rich": ("cli", "server", "spark", "zookeeper"),
    "starlette": ("server", "zookeeper"),
    "typer": ("cli", "server", "spark", "zookeeper"),
    "uvicorn": ("server", "zookeeper"),
    "yaml": ("spark",),
}


class MissingExtraError(LocalError, ImportError):
    """Something was asked for whose packages are not installed. The text says what to install."""


def missing_extra(error: ImportError, what: str, extra: str = "") -> MissingExtraError | None:
    """What to say of an import that failed because ``what`` needs an extra; None: it failed for another reason.

    ``extra``: the one that brings all of ``what``; it is named where it brings the package, else the package's own.
    """
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    wanted = extra if extra in EXTRAS[package] else EXTRAS[package][0]
    return MissingExtraError(f"{what} needs {package}, which is not installed: pip install 'geminga[{wanted}]'")


def check_installed(package: str, what: str) -> None:
    """Raise MissingExtraError if ``package``, which ``what`` needs later, is not there; it is not loaded."""
    with needed_for(what):
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)


@contextmanager
def needed_for(what: str, extra: str = "") -> Iterator[None]:
    """Around imports: raises MissingExtraError where a package of an extra is missing."""
    try:
        yield
    except ImportError as error:
        missing = missing_extra(error, what, extra)
        if missing is None:
            raise
        raise missing from None
