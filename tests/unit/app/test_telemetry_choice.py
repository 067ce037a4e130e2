"""Whether spans are made: only where OpenTelemetry's own variable asks for what is there."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.app.servers.telemetry_choice import open_telemetry
from geminga.model.errors import ConfigurationError
from geminga.runtime.threads import LaneThreads


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}],
)
def test_nobody_who_does_not_ask_has_any(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    closers: list[Any] = []
    assert open_telemetry(LaneThreads(), closers) is None
    assert not closers


def test_an_exporter_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ConfigurationError, match="OTEL_TRACES_EXPORTER=zipkin: expected otlp, or none"):
        open_telemetry(LaneThreads(), [])
