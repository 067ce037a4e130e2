"""Settings that are changed at run time: one JSON object of texts in the metadata store, which every broker follows.

The node is Pulsar's (``docs/formats/dynamic-configuration.md``), so that brokers of both makes follow the same values.
A key that is there overrides what the broker's own configuration says, until it is taken away. Who writes checks; who
reads believes nothing: a value that is no good here is told once, and the broker's own one holds.

Configuration is frozen for everybody else. Here, and nowhere else, fields of the broker's own objects are assigned, and
whoever copied one is told through ``changed``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from geminga.app.configuration.config import Config, Value, parse_value, type_name
from geminga.app.configuration.config_sources import ConfigEntry
from geminga.app.configuration.core.live_keys import AT_START, LIVE_KEYS, LOG_LEVELS_KEY, OF_OTHERS
from geminga.app.configuration.core.log_options import parse_levels
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.resources.documents import CHANGE_ATTEMPTS_MAX, Document, DocumentStore
from geminga.metadata.ports import MetadataStore, SessionEvent
from geminga.model.errors import (
    ConfigurationError,
    ConflictError,
    CorruptionError,
    MetadataError,
    NotFoundError,
    PreconditionFailedError,
)
from geminga.model.settings import Setting, settings_of
from geminga.runtime import Part, get_logger, spawn

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_log = get_logger(__name__)

#: Of one value, characters: the node holds 1 MiB with all of them.
TEXT_CHARACTERS_MAX: Final = 4096
#: Numbers as Java reads them; Python takes more (``1_000``, other digits).
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION: Final = re.compile(r"[+-]?[0-9]{0,300}\.?[0-9]{0,300}(?:[eE][+-]?[0-9]{1,3})?")
_SHEDDING: Final = "loadBalancerLoadSheddingStrategy"


class _Live(NamedTuple):
    """A setting, where it is, and what the broker's own configuration says."""

    setting: Setting
    type_name: str
    owner: DataclassInstance
    name: str
    configured: Value

    def assign(self, value: Value) -> bool:
        """Whether it is another one than before."""
        if getattr(self.owner, self.name) == value:
            return False
        object.__setattr__(self.owner, self.name, value)
        return True


class LiveSettings:
    """See the module."""

    def __init__(
        self,
        config: Config,
        metadata: MetadataStore,
        path: str,
        changed: Callable[[], Awaitable[None]],
        part: Callable[[], Part | None],
    ) -> None:
        """``path``: of the node. ``changed``: on return whoever copied a value follows it; ``part``: whose failure it
        is if that breaks."""
        self._store = DocumentStore(metadata)
        self._path = path
        self._changed = changed
        self._part = part
        # Where load is not managed nobody reads these; they are checked all the same.
        self._load = config.load or LoadConfig()
        values = config.values()
        self._started_with = {key: values.get(key, "") for key in AT_START}
        self._live = {
            key: one
            for owner in (config.server, config.broker, config.managed_ledger, self._load)
            for key, one in _live_of(owner)
        }
        #: One write of this broker's at a time: they would meet in the node.
        self._writing = asyncio.Lock()
        self._following = asyncio.Lock()
        #: Somebody is about to follow, and did not read yet.
        self._is_due = False
        #: Values are assigned, and who copied them was not told to the end.
        self._is_behind = False
        #: What could not be read was told.
        self._logged: set[tuple[str, str]] = set()

    @property
    def names(self) -> list[str]:
        """Of what can be changed."""
        return sorted(self._live)

    async def values(self) -> dict[str, str]:
        """What was changed, as it is stored, also what only other brokers know. Raises MetadataError,
        CorruptionError."""
        found = await self._store.find(self._path)
        return {} if found is None else _texts(found.document)

    async def set(self, key: str, text: str) -> None:
        """For all brokers; on return this one follows. Raises PreconditionFailedError, MetadataError."""
        self._check(key, text)
        async with self._writing:
            await self._write(lambda document: {**document, key: text}, {key: text})
        await self.follow()

    async def delete(self, key: str) -> None:
        """As each broker's own configuration says from now on. Raises PreconditionFailedError, MetadataError."""
        if key not in self._live and key not in OF_OTHERS | AT_START:
            raise PreconditionFailedError("Can't delete non-dynamic configuration")
        async with self._writing:
            await self._write(lambda document: {one: text for one, text in document.items() if one != key}, None)
        await self.follow()

    async def follow(self) -> None:
        """On return this broker has the values that were stored before the call. Raises MetadataError,
        CorruptionError."""
        async with self._following:
            self._is_due = False
            found = await self._store.find(self._path)
            self._is_behind |= self._apply({} if found is None else found.document)
            if not self._is_behind:
                return
            try:
                await self._changed()
            except asyncio.CancelledError:
                # Who asked went away; the values are here, and are followed all the same.
                self.follow_soon()
                raise
            self._is_behind = False

    def follow_soon(self) -> None:
        """The node may have changed."""
        if not self._is_due:
            self._is_due = True
            spawn(self._follow_changes(), name="follow the changed configuration", part=self._part())

    def heard(self, event: SessionEvent) -> None:
        """Of the session: what was missed while the store was away is read."""
        if event is not SessionEvent.CONNECTION_LOST:
            self.follow_soon()

    async def start(self) -> None:
        """Before anything is made of the settings. What can not be read keeps no broker from starting."""
        try:
            found = await self._store.find(self._path)
        except CorruptionError as error:
            _log.error("settings that were changed at run time are not followed: %s", error)
            return
        self._apply({} if found is None else found.document)

    async def close(self) -> None:
        """As configured again: whoever starts with the same configuration reads what is stored then."""
        for live in self._live.values():
            live.assign(live.configured)

    # ---- writing

    async def _write(self, change: Callable[[Document], Document], first: Mapping[str, str] | None) -> None:
        """``first``: what is stored where nothing is; None: nothing."""
        for _ in range(CHANGE_ATTEMPTS_MAX):
            try:
                await self._store.change(self._path, change, "")
                return
            except NotFoundError:
                if first is None:
                    return
            try:
                await self._store.create(self._path, first, "")
                return
            except ConflictError:
                continue  # somebody else made it
        raise ConflictError(f"{self._path} kept changing; try again")

    def _check(self, key: str, text: str) -> None:
        live = self._live.get(key)
        if key in AT_START:
            raise PreconditionFailedError(_at_start(key, text))
        if live is None:
            raise PreconditionFailedError(
                f"{key} is no setting of Geminga's: it would change nothing here"
                if key in OF_OTHERS
                else "Can't update non-dynamic configuration"
            )
        value = self._parsed(live, text, "the request")
        if live.owner is self._load:
            try:
                self._check_load({live.name: value})
            except ConfigurationError as error:
                raise PreconditionFailedError(f"Invalid dynamic-config value: {error}") from error

    def _check_load(self, values: Mapping[str, Any]) -> None:
        """What no single setting says. Raises ConfigurationError."""
        replace(self._load, **values).check()

    # ---- following

    async def _follow_changes(self) -> None:
        try:
            await self.follow()
        except (MetadataError, CorruptionError) as error:
            # Nothing changes; the next watch, or the next session, tells again.
            _log.warning("settings that were changed at run time could not be read: %s", error)

    def _apply(self, document: Document) -> bool:
        """Whether anything is another now."""
        texts = _texts(document)
        self._tell_of_others(texts)
        wanted = {key: self._wanted(key, live, texts.get(key)) for key, live in self._live.items()}
        of_load = {live.name: wanted[key] for key, live in self._live.items() if live.owner is self._load}
        try:
            self._check_load(of_load)
        except ConfigurationError as error:
            self._tell(_SHEDDING, texts.get(_SHEDDING, ""), error)
            wanted[_SHEDDING] = self._live[_SHEDDING].configured
        changed = [key for key, live in self._live.items() if live.assign(wanted[key])]
        for key in changed:
            _log.info("%s is %r from now on", key, wanted[key])
        return bool(changed)

    def _wanted(self, key: str, live: _Live, text: str | None) -> Value:
        if text is None:
            return live.configured
        try:
            return self._parsed(live, text, f"metadata node {self._path}")
        except PreconditionFailedError as error:
            self._tell(key, text, error)
            return live.configured

    def _tell_of_others(self, texts: Mapping[str, str]) -> None:
        """What keeps a process from starting is no less missed where Apache's brokers were told it at run time."""
        for key in sorted(AT_START & texts.keys()):
            if texts[key].strip() and texts[key] != self._started_with[key]:
                self._tell(key, texts[key], PreconditionFailedError(_at_start(key, texts[key])))
        others = sorted(OF_OTHERS & texts.keys())
        if not others:
            return
        # The table is long, and rarely needed.
        from geminga.app.configuration.core.unbuilt_keys import asked_in_vain

        for key in others:
            group = asked_in_vain(key, texts[key])
            if group is not None and group.is_refused:
                self._tell(key, texts[key], PreconditionFailedError(f"{key}={texts[key][:80]}: {group.instead}"))

    def _tell(self, key: str, text: str, error: Exception) -> None:
        if (key, text) not in self._logged:
            if len(self._logged) >= len(LIVE_KEYS):
                self._logged.clear()
            self._logged.add((key, text))
            _log.warning("a setting that was changed at run time is not followed: %s", error)

    @staticmethod
    def _parsed(live: _Live, text: str, source: str) -> Value:
        """Raises PreconditionFailedError that says what is expected."""
        key = live.setting.key
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        if not text.strip():
            raise PreconditionFailedError(
                f"Invalid dynamic-config value: {key} is empty; delete it to have the default"
            )
        if len(text) > TEXT_CHARACTERS_MAX:
            raise PreconditionFailedError(
                f"Invalid dynamic-config value: {key} has {len(text)} characters, more than {TEXT_CHARACTERS_MAX}"
            )
        base = live.type_name.removesuffix("|None")
        pattern = {"int": _NUMBER, "float": _FRACTION}.get(base)
        if pattern is not None and not pattern.fullmatch(text.strip()):
            raise PreconditionFailedError(
                f"Invalid dynamic-config value: {key}={shown} ({source}): expected {live.setting.expectation}"
            )
        try:
            value = parse_value(live.setting, live.type_name, ConfigEntry(key, text, source))
            if key == LOG_LEVELS_KEY and isinstance(value, tuple):
                parse_levels(value)
        except ConfigurationError as error:
            raise PreconditionFailedError(f"Invalid dynamic-config value: {error}") from error
        most = LIVE_KEYS[key]
        if most and isinstance(value, int | float) and not (isfinite(value) and -most - 1 <= value <= most):
            raise PreconditionFailedError(
                f"Invalid dynamic-config value: {key}={shown} ({source}): expected at most {most}"
            )
        if value == ():
            raise PreconditionFailedError(f"Invalid dynamic-config value: {key} names nothing")
        return value


def _live_of(owner: DataclassInstance) -> list[tuple[str, _Live]]:
    types = {field.name: type_name(field.type) for field in fields(owner)}
    return [
        (key, _Live(setting, types[name], owner, name, getattr(owner, name)))
        for key, (setting, name) in settings_of(type(owner)).items()
        if key in LIVE_KEYS
    ]


def _texts(document: Document) -> dict[str, str]:
    """As Pulsar reads it: numbers and truth are their texts, and what is neither is none of ours."""
    found: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, bool):
            found[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            found[key] = str(value)
    return found


def _at_start(key: str, text: str) -> str:
    return f"{key}={text[:80]} is read at the start: say it to each broker of the cluster, and start them anew"
