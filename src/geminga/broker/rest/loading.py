"""The application, made when somebody asks for it: HTTP software is not imported before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from geminga.broker.rest.application import Loads
    from geminga.broker.rest.calls.context import RestContext
    from geminga.broker.rest.calls.routing import SegmentRouter


async def at_once(make: Callable[[], SegmentRouter]) -> SegmentRouter:
    """Load rows here and now, where there are no threads."""
    return make()


def application_maker(context: Callable[[], RestContext], load: Loads = at_once) -> Callable[[], ASGIApp]:
    """The function that makes the application for the ``context``, which is made then too.

    ``load`` makes what answers a family of paths, with the first request for one.
    """

    def make() -> ASGIApp:
        from geminga.broker.rest.application import make_application

        return make_application(context(), load)

    return make
