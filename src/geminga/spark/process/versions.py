"""Which PySpark is installed, and whether it is new enough."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from geminga.spark.process.errors import PySparkMissingError

#: The first PySpark whose Python stream readers get read limits (admission control, ``Trigger.AvailableNow``).
PYSPARK_OLDEST = (4, 2)


def require_pyspark() -> str:
    """The version of the installed PySpark; raises :class:`PySparkMissingError` if it is missing or too old."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        found = ""
    wanted = ".".join(map(str, PYSPARK_OLDEST))
    if not found:
        raise PySparkMissingError(
            f"geminga.spark needs PySpark {wanted} or newer, and none is installed: pip install 'geminga[spark]'"
        )
    if not is_new_enough(found):
        raise PySparkMissingError(
            f"geminga.spark needs PySpark {wanted} or newer, but {found} is installed: "
            f"pip install --upgrade 'pyspark>={wanted}'"
        )
    return found


def is_new_enough(found: str) -> bool:
    """Whether the version text ``found`` is at least :data:`PYSPARK_OLDEST`; ``4.10.0.dev1`` is."""
    numbers = []
    for part in found.split(".")[:2]:
        digits = "".join(character for character in part if character.isdigit())
        numbers.append(int(digits or 0))
    return tuple(numbers) >= PYSPARK_OLDEST
