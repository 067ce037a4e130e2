"""``geminga loadbalance``: what a cluster's leader would decide."""

from __future__ import annotations

from typing import Annotated

import typer

from geminga.app.commands.server_options import Settings

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What the leader of a cluster would move.")


@commands.callback()
def loadbalance() -> None:
    """What the leader of a cluster would move."""


@commands.command()
def simulate(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A file of JSON lines, one for each round; -: standard input.")
    ],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Pulsar's .conf or a .toml file; may be repeated."),
    ] = None,
    assignments: Settings = None,
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", min=0, help="Go on with the last line until so many rounds are done."),
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn among equal brokers.")] = 1,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay a trace of load through the leader's decisions: what would move, who carries what, round by round."""
    from geminga.app.commands.documents import render
    from geminga.app.commands.load_replay import replayed

    document = replayed(trace, config or (), assignments or (), rounds=rounds, seed=seed, is_json=is_json)
    print(render(document, is_json=is_json))
