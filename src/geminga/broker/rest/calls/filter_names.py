"""Names of entry filters in a request: only those that this broker knows are taken, as in Pulsar."""

from __future__ import annotations

from typing import Any

from geminga.broker.core.coercion import BodyError, Json
from geminga.broker.policies.core.delivery_rows import ENTRY_FILTERS
from geminga.broker.policies.core.readers import filters_of
from geminga.broker.policies.core.row import PolicyRow


def check_filters_known(row: PolicyRow[Any], value: Json, directory: str) -> None:
    """Raise BodyError if ``value`` of ``row`` names an entry filter that is not there; of other rows nothing is asked.

    Names are looked up in what is installed and in ``directory``; nothing is imported.
    """
    if row is not ENTRY_FILTERS:
        return
    text = filters_of(value)
    if text is None:
        return
    from geminga.entry_filters.names import FilterNameError, check_names, names_of

    try:
        check_names(names_of(text), directory)
    except FilterNameError as error:
        raise BodyError(error.told) from error
