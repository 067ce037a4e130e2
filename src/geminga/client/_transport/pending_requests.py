"""Requests of one connection that wait for their answers, by request id."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from geminga.client._api.errors import PulsarException, error_from_broker
from geminga.client._transport.answers import FIELD_OF_ANSWER, error_of_answer
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Requests under way on one connection.
REQUESTS_MAX: Final = 50_000

Answer = asyncio.Future[pb.BaseCommand]


class PendingRequests:
    """See the module. Every future it gave ends by the answer, by an error, or when the connection ends."""

    __slots__ = ("_answers", "_loop", "_second_answers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answers: dict[int, Answer] = {}
        #: Of producers that wait for exclusive access, until they take them.
        self._second_answers: dict[int, Answer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def start(self, request_id: int) -> Answer:
        """Wait for an answer; raises TooManyLookupRequestException if :data:`REQUESTS_MAX` wait already."""
        if len(self._answers) >= REQUESTS_MAX:
            raise error_from_broker(pb.TooManyRequests, f"{REQUESTS_MAX} requests wait for their answers already")
        answer: Answer = self._loop.create_future()
        self._answers[request_id] = answer
        return answer

    def take_second(self, request_id: int) -> Answer:
        """The second answer under the same id, which the first one announced."""
        return self._second_answers.pop(request_id)

    def end(self, request_id: int, answer: Answer) -> None:
        """Nobody waits for ``answer`` any more; a second answer that is due under its id stays."""
        if self._answers.get(request_id) is answer:
            del self._answers[request_id]

    def forget(self, request_id: int) -> None:
        """Nobody waits for any answer under this id."""
        self._answers.pop(request_id, None)
        self._second_answers.pop(request_id, None)

    def on_answer(self, command: pb.BaseCommand) -> None:
        """An answer came; dropped if nobody waits any more."""
        body = cast("pb.CommandSuccess", getattr(command, FIELD_OF_ANSWER[command.type]))
        answer = self._answers.pop(body.request_id, None)
        if answer is None or answer.done():
            return
        if command.type == pb.BaseCommand.PRODUCER_SUCCESS and not command.producer_success.producer_ready:
            # The second answer may be in this very read, before anybody asked for it.
            second: Answer = self._loop.create_future()
            self._answers[body.request_id] = self._second_answers[body.request_id] = second
        error = error_of_answer(command.type, body)
        if error is not None:
            _refuse(answer, error)
        else:
            answer.set_result(command)

    def on_error(self, request_id: int, error: PulsarException) -> None:
        """The broker refused a request; dropped if nobody waits any more."""
        answer = self._answers.pop(request_id, None)
        if answer is not None and not answer.done():
            _refuse(answer, error)

    def fail(self, error: PulsarException) -> None:
        """The connection is gone, and with it every answer."""
        answers, self._answers = self._answers, {}
        self._second_answers.clear()
        for answer in answers.values():
            if not answer.done():
                _refuse(answer, error)


def _refuse(answer: Answer, error: PulsarException) -> None:
    answer.set_exception(error)
    answer.exception()  # nobody may be waiting any more
