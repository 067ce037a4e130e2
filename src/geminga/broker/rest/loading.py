"""The application, made when somebody asks for it: HTTP software is not imported before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.broker.rest.context import RestContext

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def application_maker(context: RestContext) -> Callable[[], ASGIApp]:
    """The function that makes the application for ``context``."""

    def make() -> ASGIApp:
        from geminga.broker.rest.application import make_application

        return make_application(context)

    return make
