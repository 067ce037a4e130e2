"""The application, made when somebody asks for it: HTTP software is not imported before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from geminga.broker.rest.context import RestContext


def application_maker(context: Callable[[], RestContext]) -> Callable[[], ASGIApp]:
    """The function that makes the application for the ``context``, which is made then too."""

    def make() -> ASGIApp:
        from geminga.broker.rest.application import make_application

        return make_application(context())

    return make
