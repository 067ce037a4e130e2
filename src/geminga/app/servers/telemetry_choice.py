"""Whether traces go to OpenTelemetry: nothing of it is loaded where they do not."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from geminga.model.errors import ConfigurationError
from geminga.runtime.ports import Threads
from geminga.version import __version__

if TYPE_CHECKING:
    from geminga.app.servers.telemetry.spans import Telemetry

#: OpenTelemetry's own; off here where it is not set.
EXPORTER: Final = "OTEL_TRACES_EXPORTER"


def open_telemetry(threads: Threads, closers: list[tuple[str, Callable[[], Awaitable[None]]]]) -> Telemetry | None:
    """What makes spans; None: the environment does not ask for it. Its end becomes one of ``closers``.

    Raises ConfigurationError, and MissingExtraError where the SDK is not installed.
    """
    wanted = os.environ.get(EXPORTER, "").strip().lower()
    if wanted in ("", "none") or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if wanted != "otlp":
        raise ConfigurationError(f"{EXPORTER}={wanted}: expected otlp, or none")
    from geminga.model.extras import needed_for

    with needed_for(f"{EXPORTER}=otlp", "otel"):
        from geminga.app.servers.telemetry.spans import LANE, Telemetry

    telemetry = Telemetry(__version__)

    async def close() -> None:
        await threads.call(LANE, telemetry.close)

    closers.append(("telemetry", close))
    return telemetry
