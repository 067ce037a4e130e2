"""A bookie whose directories are harmed or mixed up while it is down: it refuses to start, or tells nothing wrong.

Two bookies, one with a pair of directories and one with two pairs, take entries, fences and flushes and stop or lose
their power. Then the disk of one is emptied, its journal or an entry log is damaged, directories change places. Who
starts all the same must keep the promise: an acknowledged entry is read with its bytes or answered with an error that
does not say that it never was there, and a fenced ledger takes no ordinary add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.core import journal_format
from geminga.bookie.core.entry_log_format import FILE_HEADER_BYTES
from geminga.bookie.core.journal_format import GROUP_MAGIC
from geminga.bookie.spread import SpreadBookie
from geminga.model.errors import CorruptionError, DataDirectoryError, NoSuchEntryError, NoSuchLedgerError
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.bookie_node import entries_of
from support.stories.bookie_crash import TINY
from support.worlds.bookies import Calls, Listed

PAIRS = [("/j/1", "/l/1"), ("/j/2", "/l/2")]
LEDGERS = (1, 2, 3, 4)
STEPS = 40
#: Of an entry: several share a log, and one has the place of another in another log.
SIZE = 40


class MisfortuneStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("misfortune")
        self.node = world.node("bookie")
        self.is_spread = self.rng.random() < 0.3
        self.pairs = PAIRS if self.is_spread else PAIRS[:1]
        self.metadata = Listed(set())
        self.metadata.live.update(LEDGERS)
        #: Ledger -> entries acknowledged.
        self.acknowledged: dict[int, list[bytes]] = {ledger_id: [] for ledger_id in LEDGERS}
        self.fenced: set[int] = set()
        self.instance_id = ""

    # ---- the bookie

    async def _open(
        self, node: SimNode, pairs: Sequence[tuple[str, str]], *, accept: bool = False
    ) -> LocalBookie | SpreadBookie:
        if self.is_spread:
            return await SpreadBookie.open(node.runtime, pairs, TINY, ledgers=self.metadata)
        [(journal, ledgers)] = pairs
        config: BookieConfig = replace(
            TINY, journal_directory=journal, ledger_directory=ledgers, accept_damaged_journal=accept
        )
        return await LocalBookie.open(
            node.runtime,
            "",
            config,
            ledgers=self.metadata,
            expected_instance_id=self.instance_id or None,
        )

    async def run(self) -> None:
        """One bookie's life, its misfortune, and what it says then."""
        try:
            await self.world.restart(self.node, self._live)
        except NodeCrashedError:
            pass
        self.world.crash(self.node, power_loss=self.rng.random() < 0.5)
        await self.world.restart(self.node, self._strike_and_look)

    async def _live(self, node: SimNode) -> None:
        bookie = await self._open(node, self.pairs)
        if isinstance(bookie, LocalBookie):
            self.instance_id = bookie.instance_id
        calls = Calls(bookie)
        for _ in range(STEPS):
            ledger_id = self.rng.choice(LEDGERS)
            roll = self.rng.random()
            if roll < 0.75 and ledger_id not in self.fenced:
                await self._add(calls, ledger_id)
            elif roll < 0.83:
                if await calls.fence(ledger_id) is None:
                    self.fenced.add(ledger_id)
            elif roll < 0.95:
                for part in bookie.parts if isinstance(bookie, SpreadBookie) else [bookie]:
                    await part.flush()
            else:
                await self.world.sleep(self.rng.uniform(0, 1))
        if self.rng.random() < 0.3:
            await bookie.close()

    async def _add(self, calls: Calls, ledger_id: int) -> None:
        known = self.acknowledged[ledger_id]
        entries = entries_of(ledger_id, len(known), self.rng.randint(1, 4), size=SIZE)
        if await calls.add(ledger_id, len(known), entries) is None:
            known.extend(entries)

    # ---- what befalls it

    async def _strike_and_look(self, node: SimNode) -> None:
        kinds: dict[str, Callable[[SimNode], object]] = {"nothing": lambda _: None}
        if self.is_spread:
            kinds["directories changed places"] = lambda _: None
        else:
            kinds |= {
                "journal emptied": lambda node: self._empty(node, "/j"),
                "all emptied": lambda node: self._empty(node, "/j", "/l"),
                "journal damaged": self._damage_journal,
                "log has another's chunks": self._mix_logs,
            }
        kind = self.rng.choice(sorted(kinds))
        struck = kinds[kind](node)
        self.world.points.hits[f"misfortune.{kind}"] += struck is not False
        pairs = list(self.pairs)
        if kind == "directories changed places":
            journals, ledgers = zip(*pairs, strict=True)
            moved = self.rng.choice((ledgers[::-1], ledgers))
            pairs = list(zip(journals[::-1], moved, strict=True))
        try:
            bookie = await self._open(node, pairs, accept=kind == "journal damaged")
        except (DataDirectoryError, CorruptionError):
            assert kind != "nothing", "a bookie that nothing befell does not start"
            self.world.points.hits["misfortune.refused"] += 1
            return
        self.world.points.hits["misfortune.started"] += 1
        await self._look(Calls(bookie), is_whole=kind == "nothing")

    def _files(self, node: SimNode, *directories: str) -> list[str]:
        return [path for path in node.disk.paths() if path.startswith(tuple(f"{name}/" for name in directories))]

    def _empty(self, node: SimNode, *directories: str) -> None:
        for path in self._files(node, *directories):
            holder, name = node.disk.parent(path)
            holder.change({name: None})
            holder.sync()

    def _damage_journal(self, node: SimNode) -> bool:
        """One bit of what was written to one file, but for the last group of all, whose damage no format tells from a
        torn write (docs/formats/journal.md); False: there is no other."""
        journals = [path for path in self._files(node, "/j") if path.endswith(".journal")]
        path = self.rng.choice(journals)
        header = journal_format.FILE_HEADER_BYTES
        data = node.disk.contents(path).rstrip(b"\0")
        with_groups = [one for one in journals if GROUP_MAGIC in node.disk.contents(one)[header:]]
        is_last = path == max(with_groups, default=path)
        used = data.rfind(GROUP_MAGIC) if is_last else len(data)
        if used <= header:
            return False
        at = self.rng.randrange(header, used)
        node.disk.damage(path, at, bytes([node.disk.contents(path)[at] ^ 1 << self.rng.randrange(8)]))
        return True

    def _mix_logs(self, node: SimNode) -> bool:
        """The disk wrote one log's chunks in another log's place."""
        logs = [path for path in self._files(node, "/l") if path.endswith(".log")]
        if len(logs) < 2:
            return False
        source, target = self.rng.sample(logs, 2)
        size = len(node.disk.contents(target))
        node.disk.damage(target, FILE_HEADER_BYTES, node.disk.contents(source)[FILE_HEADER_BYTES:size])
        return True

    # ---- what it says

    async def _look(self, calls: Calls, *, is_whole: bool) -> None:
        for ledger_id in sorted(self.fenced):
            first = len(self.acknowledged[ledger_id])
            late = await calls.add(ledger_id, first, entries_of(ledger_id, first, 1, size=SIZE))
            assert late is not None, f"ledger {ledger_id} was fenced, and takes an add of its old writer"
        for ledger_id, entries in self.acknowledged.items():
            for entry_id, entry in enumerate(entries):
                [found] = await calls.read(ledger_id, entry_id)
                where = f"{ledger_id}:{entry_id}"
                if isinstance(found, bytes):
                    assert found == entry, f"{where} has other bytes"
                    continue
                assert not is_whole, f"{where} was acknowledged: {found!r}"
                absent = isinstance(found, NoSuchEntryError | NoSuchLedgerError)
                assert not absent, f"{where} was acknowledged, and is said never to have been there: {found!r}"
                self.world.points.hits["misfortune.not told"] += 1


async def misfortune_story(world: SimWorld) -> None:
    """The scenario."""
    await MisfortuneStory(world).run()
