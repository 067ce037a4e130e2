"""Why a connection is not read: the transport hears of the first reason and of the end of the last."""

from __future__ import annotations

from geminga.broker.connection.core.read_gate import PauseReason, ReadGate


class Source:
    """A transport, and who is told of reasons that go, in one list."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.gate = ReadGate(self.heard.append)
        self.gate.attach(self)

    def pause_reading(self) -> None:
        self.heard.append("pause")

    def resume_reading(self) -> None:
        self.heard.append("resume")


def test_first_reason_stops_reading_and_the_end_of_the_last_goes_on() -> None:
    source = Source()
    source.gate.hold(PauseReason.PENDING_PUBLISHES)
    source.gate.hold(PauseReason.WRITE_BUFFER)
    assert source.heard == ["pause"]
    source.gate.free(PauseReason.PENDING_PUBLISHES)
    assert source.heard == ["pause", PauseReason.WRITE_BUFFER]
    source.gate.free(PauseReason.WRITE_BUFFER)
    # Who is told is told before anything can be read.
    assert source.heard == ["pause", PauseReason.WRITE_BUFFER, PauseReason.NONE, "resume"]


def test_reason_that_is_given_twice_is_one_and_one_that_is_not_there_changes_nothing() -> None:
    source = Source()
    source.gate.free(PauseReason.PUBLISH_RATE)
    source.gate.hold(PauseReason.PUBLISH_RATE)
    source.gate.hold(PauseReason.PUBLISH_RATE)
    source.gate.free(PauseReason.FRAME_BUFFER)
    source.gate.free(PauseReason.PUBLISH_RATE)
    assert source.heard == ["pause", PauseReason.NONE, "resume"]


def test_without_a_source_reasons_come_and_go_and_at_the_end_nobody_is_told() -> None:
    source = Source()
    source.gate.hold(PauseReason.COMMANDS_LEFT)
    source.gate.detach()
    source.gate.hold(PauseReason.COMMAND_UNDER_WAY)
    source.gate.free(PauseReason.COMMAND_UNDER_WAY)
    assert source.heard == ["pause", PauseReason.COMMANDS_LEFT]
    source.gate.end()
    source.gate.free(PauseReason.COMMANDS_LEFT)
    assert source.heard == ["pause", PauseReason.COMMANDS_LEFT]
    assert source.gate.reasons == PauseReason.NONE
