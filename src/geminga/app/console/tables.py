"""What a page and an act are: rows that a subject gives, and what it is asked with.

A page is ``Page("/topics", topics, section="Topics")`` with ``async def topics(view: View) -> Rendered``. An act is
``Act("clear-backlog", "Clear a backlog", question, carry_out)``: GET shows its question, POST does it. The application
asks the question anew before it carries out, and shows it again where more would be hit than the visitor was told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from geminga.admin import AdminClient
from geminga.app.console.core.history import SeenLately
from geminga.client import Client

T = TypeVar("T")

#: Rows of one page of a list, unless said otherwise.
ROWS_PER_PAGE: Final = 50
#: Characters of what is searched for, and of a name.
SEARCH_LENGTH_MAX: Final = 512
#: Larger numbers of a page are the last page.
PAGE_MAX: Final = 1_000_000


class Refusal(Exception):
    """What a visitor asked for can not be: one sentence, and the status of HTTP."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        self.sentence: Final = sentence
        self.status: Final = status
        super().__init__(sentence)


class Paged(NamedTuple, Generic[T]):
    """One page of rows."""

    rows: Sequence[T]
    #: From 1.
    number: int
    pages: int
    #: Rows in all.
    total: int


class Rendered(NamedTuple):
    """A template, below ``templates``, and what it shows. Blocks of it named ``part_NAME`` are its live parts."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


class Attached(NamedTuple):
    """Bytes that the visitor's browser keeps as a file: it never shows them."""

    file_name: str
    data: bytes


class View:
    """A request as pages and acts see it."""

    def __init__(
        self,
        admin: AdminClient,
        path: Mapping[str, str],
        query: Mapping[str, str],
        *,
        form: Mapping[str, str],
        can_act: bool,
        part: str,
        now_ms: int,
        seen: SeenLately,
        clients: Callable[[], AbstractAsyncContextManager[Client]],
    ) -> None:
        #: Asks as the visitor.
        self.admin: Final = admin
        #: Parameters of the path.
        self.path: Final = path
        #: The first value of each name.
        self.query: Final = query
        #: What was posted; empty for GET.
        self.form: Final = form
        #: Whether acts are served at all (``gemingaConsole``); who may do which, the broker says.
        self.can_act: Final = can_act
        #: The live part that is wanted alone; empty: the whole page.
        self.part: Final = part
        #: Since the epoch.
        self.now_ms: Final = now_ms
        #: Numbers of the last minutes, for plots; what is shown of it the visitor was just allowed to ask for.
        self.seen: Final = seen
        #: ``async with view.client() as client``: publishes and reads as the visitor. Raises UnavailableError.
        self.client: Final = clients

    def given(self, name: str) -> str:
        """A value that was entered, or came with the address; empty: none."""
        return self.form.get(name, self.query.get(name, ""))

    def wanted(self, name: str, *, most: int = 4096) -> str:
        """The same, where there is no page without it; raises Refusal."""
        value = self.given(name)
        if not value or len(value) > most:
            raise Refusal(f"This page needs {name} in its address, of at most {most:,} characters.")
        return value

    def number(self, name: str, standard: int, *, least: int, most: int) -> int:
        """A whole number; raises Refusal for what is none, or out of bounds."""
        text = self.given(name).strip()
        if not text:
            return standard
        if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 20):
            raise Refusal(f"{name} is a whole number from {least:,} to {most:,}, not “{text[:100]}”.")
        value = int(text)
        if not least <= value <= most:
            raise Refusal(f"{name} is a whole number from {least:,} to {most:,}, not {value:,}.")
        return value

    def page_of(self, rows: Sequence[T], *, per_page: int = ROWS_PER_PAGE) -> Paged[T]:
        """The page that the query asks for (``page``); one behind the last is the last."""
        pages = max(1, -(-len(rows) // per_page))
        number = min(self.number("page", 1, least=1, most=PAGE_MAX), pages)
        return Paged(rows[(number - 1) * per_page : number * per_page], number, pages, len(rows))


class Page(NamedTuple):
    """An address and what answers there."""

    path: str
    handler: Callable[[View], Awaitable[Rendered | Attached]]
    #: Its place in the navigation; empty: it is reached from another page.
    section: str = ""


class Field(NamedTuple):
    """A field of a form."""

    name: str
    label: str
    value: str = ""
    #: ``text``, ``number``, ``textarea``, ``select``, ``checkbox``, ``datetime-local``.
    kind: str = "text"
    #: Of a select: value and words.
    choices: Sequence[tuple[str, str]] = ()
    #: What is expected, in a sentence.
    hint: str = ""
    is_required: bool = True


class Question(NamedTuple):
    """What an act asks before it does anything."""

    #: What will be done, to what and to how many.
    sentence: str
    #: What is still to be entered.
    fields: Sequence[Field] = ()
    #: On the button: ``Clear 12 messages``.
    button: str = "Go on"
    #: What would be hit, such as messages: a POST that was told of fewer is asked again. None: nothing is counted.
    hits: int | None = None
    #: What was chosen before, and goes along with the form.
    chosen: Mapping[str, str] = {}
    #: True: the form leads to the question itself, which needs what is entered to be asked.
    is_unfinished: bool = False
    #: Nothing that can not be taken back.
    is_harmless: bool = False
    #: Where "Cancel" leads.
    back: str = "/console/"
    #: Why it can not be done at all; then there is no button.
    obstacle: str = ""


class Done(NamedTuple):
    """What was done, in a sentence, and the page that says so."""

    sentence: str
    target: str


class Act(NamedTuple):
    """Something that is done once it was asked."""

    name: str
    title: str
    question: Callable[[View], Awaitable[Question]]
    carry_out: Callable[[View], Awaitable[Done]]
