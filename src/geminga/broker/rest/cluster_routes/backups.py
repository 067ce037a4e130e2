"""``/admin/v2/brokers/backup``: a copy of all that a standalone keeps, made while it runs. Pulsar has no such path."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import SuperUser
from geminga.broker.administration.services import Backups
from geminga.broker.rest.calls.requests import context_of, json_response, no_content, object_body
from geminga.broker.rest.calls.routing import Route
from geminga.model.errors import PreconditionFailedError


async def start(request: Request) -> Response:
    """Begin a backup in a directory of the server's machine; what becomes of it is asked with GET.

    The body: ``directory``, absolute; ``request``, the name of a file there, ``request-`` and 32 hex digits, which
    shows that who asks may write there; ``whole``: copy also what the backup before has.
    """
    body = await object_body(request)
    directory, proof, whole = body.get("directory"), body.get("request"), body.get("whole", False)
    if not (isinstance(directory, str) and isinstance(proof, str) and isinstance(whole, bool)):
        raise PreconditionFailedError("expected directory and request, texts, and whole, true or false")
    await _backups(request).start(directory, proof, whole=whole)
    return no_content()


async def state(request: Request) -> Response:
    """What became of the backup that was begun last."""
    return json_response(_backups(request).state())


def _backups(request: Request) -> Backups:
    backups = context_of(request).backups
    if backups is None:
        raise PreconditionFailedError(
            "this server keeps nothing in files of its own process: backups are of a standalone with a data directory, "
            "without --brokers"
        )
    return backups()


ROUTES = [
    Route("/admin/v2/brokers/backup", start, methods=["POST"], needs=SuperUser.BACK_UP),
    Route("/admin/v2/brokers/backup", state, methods=["GET"], needs=SuperUser.LOOK_AT_BACKUP),
]
