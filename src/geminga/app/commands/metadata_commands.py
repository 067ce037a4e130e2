"""``geminga metadata copy``: the metadata of a standalone that becomes a cluster."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from geminga.app.storage.metadata_copy import Copied

#: Of a metadata store that is a file in a data directory.
SQLITE: Final = "sqlite:"
#: Between two lines of progress, seconds.
PROGRESS_S: Final = 1.0

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The metadata of a stopped standalone.")


@commands.callback()
def _only() -> None:
    """Keep ``copy`` a word of its own."""


@commands.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="DIR", help="The data directory of a stopped standalone (sqlite:DIR).")
    ],
    target: Annotated[
        str, typer.Argument(metavar="zk:HOST:PORT/PATH", help="A ZooKeeper; what is there must be empty.")
    ],
    store_config: Annotated[
        str, typer.Option("--metadata-store-config-path", metavar="FILE", help="ZooKeeper's client properties: TLS.")
    ] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print what was copied as JSON.")] = False,
) -> None:
    """Copy all metadata of a standalone to a ZooKeeper, compare every node, and close the directory to standalones.

    Cut off anywhere, the same command goes on. Then its bookie and a broker start on it: docs/cluster-growing.md.
    """
    import asyncio

    from geminga.app.configuration.core.log_options import LogOptions
    from geminga.app.configuration.zookeeper_client import with_client_config
    from geminga.app.lifecycle.log_lines import begin_log
    from geminga.app.storage.metadata_copy import copy_directory
    from geminga.metadata.core.zookeeper_address import parse_zookeeper_address

    begin_log(LogOptions("warning"))
    directory = os.path.abspath(source.removeprefix(SQLITE))
    address = with_client_config(parse_zookeeper_address(target), store_config)
    done = asyncio.run(copy_directory(directory, address, _Progress().tell))
    _print(directory, done, is_json=is_json)


class _Progress:
    """A line on standard error from time to time, and at the end of each part."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def tell(self, what: str, done: int, of: int) -> None:
        """``done`` nodes of ``of`` were copied, or compared."""
        import asyncio

        now = asyncio.get_running_loop().time()
        if now >= self._next_s or done == of:
            self._next_s = now + PROGRESS_S
            print(f"{what} {done} of {of} nodes", file=sys.stderr, flush=True)


def _print(directory: str, done: Copied, *, is_json: bool) -> None:
    import json

    if is_json:
        print(
            json.dumps(
                {
                    "source": directory,
                    "target": done.target,
                    "nodes": done.nodes,
                    "bytes": done.value_bytes,
                    "sha256": done.digest,
                    "nextLedgerId": done.next_ledger_id,
                    "wasResumed": done.was_resumed,
                    "wasDone": done.was_done,
                }
            )
        )
        return
    what = "were copied before" if done.was_done else "are copied, and every one compared"
    print(
        f"{done.nodes} nodes ({done.value_bytes} bytes, SHA-256 {done.digest}) of {directory} {what}: {done.target}. "
        f"New ledgers have ids from {done.next_ledger_id} on. No standalone starts in {directory} any more; go on with "
        f"geminga bookie --data {directory} --metadata {done.target}, geminga broker --metadata {done.target}"
    )
