"""Whether directories are those of the bookie that is to start in them, by its cookies. Pure.

A cookie lies in each directory (``VERSION``) and, where there is a metadata store, in that. Writing goes from the
inside out: the bookie's own files (``recovery.establish_identity``), ``VERSION`` in each directory, the node. So what
lies further out proves what is further in; where the inner is missing, something was wiped, or is not mounted.
A standalone's bookie has no ``VERSION``; its node names the bookie's own files, which proves whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.model.errors import DataDirectoryError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie

#: Of a bookie's own files, as text.
_IDENTITY: Final = re.compile("[0-9a-f]{32}")


class DirectoryState(NamedTuple):
    """What a directory holds."""

    path: str
    #: Its ``VERSION``.
    cookie: BookieCookie | None
    #: Whether the bookie's own cookie is there.
    has_identity: bool
    #: What that names, hex; empty: nothing.
    identity: str = ""


class Stamping(NamedTuple):
    """What is to be written once the bookie is open."""

    #: Directories that get a ``VERSION``, because it is missing or names other places.
    directories: tuple[str, ...]
    #: Whether the metadata store gets the cookie.
    is_remembered: bool
    #: Whether the bookie must be empty: the cookie was missing somewhere.
    must_be_empty: bool
    #: What to tell the operator.
    warnings: tuple[str, ...] = ()


def judge(
    own: BookieCookie, remembered: BookieCookie | None, directories: Sequence[DirectoryState], *, has_store: bool
) -> Stamping:
    """What is to be written; raises DataDirectoryError where these are not the directories of ``own``.

    ``remembered``: what the metadata store has under its id, if ``has_store``.
    """
    for state in directories:
        if state.cookie is not None:
            _check(own, state.cookie, state.path, has_store=has_store)
    if remembered is not None and remembered.instance_id != own.instance_id and _was_of_standalone(remembered):
        return _taken_over(own, remembered, directories, has_store=has_store)
    if remembered is not None:
        _check(own, remembered, "the metadata store", has_store=has_store)
    wiped = _wiped(remembered, directories)
    if wiped is not None:
        raise DataDirectoryError(
            f"{wiped} was emptied, or is not mounted: bookie {own.bookie_id} had data there, by its other cookies. "
            "Bring it back, or begin anew under another bookieId"
        )
    missing = [state.path for state in directories if state.cookie is None]
    stale = [state.path for state in directories if state.cookie is not None and state.cookie != own]
    is_new = has_store and remembered is None
    known = remembered or next((state.cookie for state in directories if state.cookie is not None), None)
    warnings = []
    if known is not None and known._replace(instance_id=own.instance_id) != own:
        warnings.append(
            f"bookie {own.bookie_id} has moved: it was in {_places(known)}, and is in {_places(own)}; its cookies "
            "say so from now on"
        )
    return Stamping(
        (*missing, *stale),
        is_new or (remembered is not None and remembered != own),
        bool(missing) or is_new,
        tuple(warnings),
    )


def _was_of_standalone(remembered: BookieCookie) -> bool:
    """A standalone has no cluster: what its bookie is known by is the identity of the bookie's own files."""
    return _IDENTITY.fullmatch(remembered.instance_id) is not None


def _taken_over(
    own: BookieCookie, remembered: BookieCookie, directories: Sequence[DirectoryState], *, has_store: bool
) -> Stamping:
    """The directories of a standalone's bookie become those of a bookie of a cluster, under its id."""
    _check(own, remembered._replace(instance_id=own.instance_id), "the metadata store", has_store=has_store)
    for state in directories:
        if state.identity != remembered.instance_id:
            found = f"holds those of {state.identity}" if state.identity else "holds none, or is not mounted"
            raise DataDirectoryError(
                f"bookie {own.bookie_id} was that of a standalone, whose files are those of {remembered.instance_id}, "
                f"and {state.path} {found}. Name the directories that it had (of a standalone: DIR/bookie)"
            )
    cluster = _cluster(own)
    return Stamping(
        tuple(state.path for state in directories if state.cookie != own),
        is_remembered=True,
        must_be_empty=False,
        warnings=(f"bookie {own.bookie_id} was that of a standalone, and is of {cluster} from now on",),
    )


def _check(own: BookieCookie, found: BookieCookie, place: str, *, has_store: bool) -> None:
    if found.bookie_id != own.bookie_id:
        raise DataDirectoryError(
            f"{place} belongs to bookie {found.bookie_id}, and this one is {own.bookie_id}: ledgers name it by that. "
            f"Start it with --set bookieId={found.bookie_id}, on port {found.bookie_id.rpartition(':')[2]} if that is "
            "its address, or with other directories"
        )
    if len(found.ledger_directories) != len(own.ledger_directories):
        raise DataDirectoryError(
            f"{place} says that bookie {own.bookie_id} has {_places(found)}, and it is told {_places(own)}: a bookie "
            "keeps the number and the order of its journal and ledger directories, for they say where a ledger lies"
        )
    if found.instance_id == own.instance_id:
        return
    if not has_store:
        raise DataDirectoryError(
            f"{place} belongs to a bookie of cluster {found.instance_id}: start it with that cluster's metadata store "
            "(metadataServiceUri)"
        )
    raise DataDirectoryError(
        f"{place} belongs to a bookie of {_cluster(found)}, and the metadata store is that of {_cluster(own)}: what it "
        "holds would be taken for garbage there"
    )


def _cluster(cookie: BookieCookie) -> str:
    return f"cluster {cookie.instance_id}" if cookie.instance_id else "no cluster"


def _wiped(remembered: BookieCookie | None, directories: Sequence[DirectoryState]) -> str | None:
    """A directory that lacks what a cookie further out proves to have been there."""
    has_version = any(state.cookie is not None for state in directories)
    for state in directories:
        if remembered is not None and state.cookie is None:
            return state.path
        if (remembered is not None or has_version) and not state.has_identity:
            return state.path
    return None


def _places(cookie: BookieCookie) -> str:
    return f"{','.join(cookie.journal_directories)} and {','.join(cookie.ledger_directories)}"
