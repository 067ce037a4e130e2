"""The blocking ``TableView``.

Generated from ``client/_table_view.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from types import TracebackType
from typing import Generic, Self

from geminga.client._table_view import T, TableListener
from geminga.client._table_view import TableView as AsyncTableView
from geminga.client.blocking._facade import Facade
from geminga.client.blocking._listeners import for_table


class TableView(Facade[AsyncTableView[T]], Generic[T]):
    """Reads the (compacted) topic from its beginning and follows it; made by :meth:`Client.create_table_view`.

    Messages without key are passed over; a message without value, or with an empty payload, removes its key.
    """

    __slots__ = ()

    def get(self, key: str) -> T | None:
        """The newest value, None if there is none.

        Raises AlreadyClosed, why the view can not follow the topic, or InvalidConfiguration for a key that is no text.
        """
        return self._call(lambda: self._target.get(key))

    def __getitem__(self, key: str) -> T:
        return self._call(lambda: self._target.__getitem__(key))

    def __contains__(self, key: object) -> bool:
        return self._call(lambda: self._target.__contains__(key))

    def __len__(self) -> int:
        return self._call(lambda: len(self._target))

    def __iter__(self) -> Iterator[str]:
        return iter(self._call(lambda: list(self._target)))

    def keys(self) -> KeysView[str]:
        """All keys.

        Blocking: a copy, the view goes on meanwhile.
        """
        return self._call(lambda: dict(self._target.items()).keys())

    def values(self) -> ValuesView[T]:
        """All values.

        Blocking: a copy, the view goes on meanwhile.
        """
        return self._call(lambda: dict(self._target.items()).values())

    def items(self) -> ItemsView[str, T]:
        """All keys with their values.

        Blocking: a copy, the view goes on meanwhile.
        """
        return self._call(lambda: dict(self._target.items()).items())

    def for_each(self, callback: TableListener) -> None:
        """Call ``callback`` for each key and value there is now; raises InvalidConfiguration if that can not be."""
        self._run(lambda: self._target.for_each(for_table(callback)))

    def for_each_and_listen(self, callback: TableListener) -> None:
        """Call ``callback`` for each key and value there is now, and for each change from now on.

        What changes while it is told of those there are now comes behind them, the newest value of each key. What it
        raises for one of those there are now reaches the caller; what it raises later is logged, and the view goes on.
        Cancelled, it is told of nothing more. Raises InvalidConfiguration if it can not be called.
        """
        self._run(lambda: self._target.for_each_and_listen(for_table(callback)))

    def refresh(self) -> None:
        """Wait until everything that is in the topic now is in the view and its listeners were told; raises why it can
        not be read. A listener that calls it does not wait for itself.
        """
        self._run(lambda: self._target.refresh())

    def close(self) -> None:
        """Stop following; harmless twice."""
        self._run(lambda: self._target.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
