"""What is asked of a whole namespace, done bundle by bundle at the owner of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.ownership.core.bundles import Bundle, Bundles
from geminga.broker.ownership.lookup import no_owner
from geminga.broker.ownership.ports import Elsewhere, Here, Owner
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.requests import RestError
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import again

if TYPE_CHECKING:
    from geminga.broker.peers.http_client import PeerAnswer

#: Bundles of other brokers that are asked at the same time: no more than may be under way (``REQUESTS_AT_ONCE`` of
#: ``peers/http_client.py``), since a request's time runs while it waits for its turn.
BUNDLES_AT_ONCE: Final = 32


async def at_owners(
    cut: Bundles,
    owner_of: Callable[[Bundle], Awaitable[Owner | None]],
    here: Callable[[Sequence[Bundle]], Awaitable[None]],
    there: Callable[[Bundle, Elsewhere], Awaitable[None]],
) -> None:
    """Do it to all bundles: ``here`` to this broker's, meanwhile ``there`` to one of another's; none where nobody is.

    What one refuses does not keep the others from being done: the first refusal is raised when all was tried.
    """
    own: list[Bundle] = []
    away: list[tuple[Bundle, Elsewhere]] = []
    refused: list[GemingaError] = []
    for bundle in cut.all():
        owner = await owner_of(bundle)
        if isinstance(owner, Here):
            own.append(bundle)
        elif isinstance(owner, Elsewhere):
            away.append((bundle, owner))
        elif owner is not None:
            refused.append(no_owner(f"bundle {bundle}", owner))
    results = await asyncio.gather(here(own), _there(away, there), return_exceptions=True)
    refused += _refusals(results)
    if refused:
        raise again(refused[0])


async def _there(
    away: Sequence[tuple[Bundle, Elsewhere]], there: Callable[[Bundle, Elsewhere], Awaitable[None]]
) -> None:
    refused: list[GemingaError] = []
    for start in range(0, len(away), BUNDLES_AT_ONCE):
        asked = (there(bundle, owner) for bundle, owner in away[start : start + BUNDLES_AT_ONCE])
        refused += _refusals(await asyncio.gather(*asked, return_exceptions=True))
    if refused:
        raise again(refused[0])


def _refusals(results: Iterable[BaseException | None]) -> list[GemingaError]:
    """Those that a broker may tell; another error is raised."""
    found: list[GemingaError] = []
    for result in results:
        if isinstance(result, GemingaError):
            found.append(result)
        elif result is not None:
            raise result
    return found


async def ask_owner(context: RestContext, bundle: Bundle, owner: Elsewhere, method: str, rest: str) -> None:
    """Ask the bundle's owner, or whom the leader chose to be, at ``rest`` of its path. Raises GemingaError."""
    peers = context.topics.elsewhere
    if peers is None:
        raise UnavailableError(f"bundle {bundle} is another broker's, which can not be asked")
    path = f"/admin/v2/namespaces/{bundle}/{rest}"
    query = f"authoritative={'true' if owner.is_chosen else 'false'}"
    answer = await peers.ask_at(owner.endpoints.default, method, path, query=query)
    if not answer.is_good:
        raise refusal(answer, f"bundle {bundle}")


def refusal(answer: PeerAnswer, what: str) -> GemingaError:
    """What another broker said against it: its answer where the request was wrong, else that it was not done."""
    if 400 <= answer.status < 500:
        return RestError(answer.status, answer.reason)
    return UnavailableError(f"{what}: {answer.reason} (the broker at {answer.url})")
