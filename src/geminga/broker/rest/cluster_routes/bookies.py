"""``/admin/v2/bookies``, and ``/admin/v2/namespaces/{tenant}/{namespace}/persistence/bookieAffinity``.

Which bookies there are and where they stand; on which of them a namespace's ledgers are.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.bookkeeper.bookie_records import RACKS_BYTES_MAX, BookieRecords
from geminga.broker.access.core.actions import SuperUser
from geminga.broker.core.coercion import object_of, text_of
from geminga.broker.resources.bookie_affinity import checked_affinity
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    NAME_CHARACTERS_MAX,
    RestError,
    context_of,
    json_body,
    json_response,
    namespace_of,
    no_content,
    nothing_set,
    path_text,
    required_body,
)
from geminga.broker.rest.calls.routing import Route

_BAD_RACK: Final = (
    "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the rack name is not "
    "allowed to contain slash (`/`) except for the beginning and end of the rack name string. When "
    "`RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only contain one slash (`/`) except for the "
    "beginning and end of the rack name string."
)


async def get_all(request: Request) -> Response:
    """All bookies that were ever registered, and not taken out of the cluster."""
    bookies: Json = [{"bookieId": bookie_id} for bookie_id in await _records(request).all()]
    return json_response({"bookies": bookies})


async def get_racks(request: Request) -> Response:
    """Where all of them stand, by group."""
    racks = await _records(request).racks()
    return json_response({group: _json(bookies) for group, bookies in sorted(racks.items())})


async def get_rack(request: Request) -> Response:
    """Where one stands."""
    bookie_id = path_text(request, "bookie")
    found = await _records(request).rack(bookie_id)
    if found is None:
        raise _not_found(bookie_id)
    return json_response(_json(found))


async def set_rack(request: Request) -> Response:
    """Put it into the group that the query names; new ledgers go by it from now on."""
    bookie_id, group = path_text(request, "bookie"), request.query_params.get("group")
    if group is None:
        raise RestError(412, "Bookie 'group' parameters is missing")
    told = await required_body(request)
    told = object_of(told, "the body")
    found: dict[str, str] = {}
    for member in ("rack", "hostname"):
        if told.get(member) is None:
            continue
        text = found[member] = text_of(told[member], member)
        if len(text) > NAME_CHARACTERS_MAX:
            raise RestError(412, f"{member} has {len(text)} characters; at most {NAME_CHARACTERS_MAX} are kept")
    if len(group) > NAME_CHARACTERS_MAX:
        raise RestError(412, f"group has {len(group)} characters; at most {NAME_CHARACTERS_MAX} are kept")
    slashes = found.get("rack", "").strip("/").count("/")
    settings = context_of(request).ledgers.bookkeeper.config
    if settings.is_rack_aware and slashes != int(settings.is_region_aware):
        raise RestError(412, _BAD_RACK)
    if not await _records(request).set(group, bookie_id, found):
        raise RestError(412, f"all that is told of bookies has at most {RACKS_BYTES_MAX} bytes")
    return no_content()


async def remove_rack(request: Request) -> Response:
    """Take it out of its group."""
    bookie_id = path_text(request, "bookie")
    if not await _records(request).remove(bookie_id):
        raise _not_found(bookie_id)
    return no_content()


async def get_affinity(request: Request) -> Response:
    """The groups; no body if there are none."""
    group = await context_of(request).resources.bookie_affinity.get(await _namespace(request))
    return nothing_set() if group is None else json_response(group)


async def set_affinity(request: Request) -> Response:
    """The next ledgers of its topics keep to these groups; nothing, or ``null``: to none any more."""
    namespace = await _namespace(request)
    await _change_affinity(request, namespace, checked_affinity(await json_body(request)))
    return no_content()


async def remove_affinity(request: Request) -> Response:
    """The next ledgers are on any bookies again."""
    await _change_affinity(request, await _namespace(request), None)
    return no_content()


async def _namespace(request: Request) -> str:
    """The namespace of the path; raises 404, 412."""
    namespace = namespace_of(request)
    if await context_of(request).resources.find_namespace_policies(namespace) is None:
        raise RestError(404, "Namespace not found")
    return namespace


async def _change_affinity(request: Request, namespace: str, group: Document | None) -> None:
    context = context_of(request)
    await context.resources.bookie_affinity.set(namespace, group)
    await context.policies_changed(namespace)


def _records(request: Request) -> BookieRecords:
    return context_of(request).ledgers.bookkeeper.records


def _not_found(bookie_id: str) -> RestError:
    return RestError(404, f"Bookie rack placement configuration not found: {bookie_id}")


def _json(value: object) -> Json:
    """It was read as JSON."""
    found: Json = value  # type: ignore[assignment]
    return found


_AFFINITY: Final = "/admin/v2/namespaces/{tenant}/{namespace}/persistence/bookieAffinity"
_RACKS: Final = "/admin/v2/bookies/racks-info"

ROUTES = [
    Route("GET", "/admin/v2/bookies/all", get_all, SuperUser.LOOK_AT_BOOKIES),
    Route("GET", _RACKS, get_racks, SuperUser.LOOK_AT_BOOKIES),
    Route("GET", f"{_RACKS}/{{bookie}}", get_rack, SuperUser.LOOK_AT_BOOKIES),
    Route("POST", f"{_RACKS}/{{bookie}}", set_rack, SuperUser.CHANGE_BOOKIES),
    Route("DELETE", f"{_RACKS}/{{bookie}}", remove_rack, SuperUser.CHANGE_BOOKIES),
    Route("GET", _AFFINITY, get_affinity, SuperUser.LOOK_AT_BOOKIE_AFFINITY),
    Route("POST", _AFFINITY, set_affinity, SuperUser.CHANGE_BOOKIE_AFFINITY),
    Route("DELETE", _AFFINITY, remove_affinity, SuperUser.CHANGE_BOOKIE_AFFINITY),
]
