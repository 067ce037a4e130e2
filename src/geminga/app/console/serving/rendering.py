"""Templates: Jinja2 with everything escaped that is not a template's own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from geminga.app.console.core import words
from geminga.app.console.core.addresses import address
from geminga.app.console.core.moments import shown_time
from geminga.app.console.tables import Refusal, Rendered

__all__ = ["PART", "TEMPLATES", "UndefinedError", "environment", "rendered"]

TEMPLATES: Final = Path(__file__).parent.parent / "templates"
#: Begins the names of blocks that are live parts.
PART: Final = "part_"


def environment() -> Environment:
    """All templates; ``ui`` has the macros of ``macros.html``, in blocks too."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.globals["address"] = address
    found.filters.update(count=words.count, rate=words.rate, size=words.size, span=words.span, plural=words.plural)
    found.filters["moment"] = shown_time
    found.globals["ui"] = found.get_template("macros.html").module
    return found


def rendered(templates: Environment, page: Rendered, shared: dict[str, object], part: str) -> str:
    """The page, or the live part of it alone; raises Refusal for a part that it has not."""
    template = templates.get_template(page.template)
    values = {**shared, **page.values}
    if not part:
        return template.render(values)
    block = template.blocks.get(PART + part)
    if block is None:
        raise Refusal(f"This page has no part {part[:100]!r}.", 404)
    return "".join(block(template.new_context(values)))
