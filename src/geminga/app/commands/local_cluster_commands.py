"""``geminga cluster``: a whole cluster on this machine, to try things out and for tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from types import FrameType

    from geminga.app.local.core.local_cluster import ClusterState
    from geminga.app.local.local_cluster import LocalCluster, MemberStatus
    from geminga.app.local.local_mesh import ClusterStatus, LocalMesh

#: Where a cluster keeps everything unless told.
DIRECTORY: Final = "geminga-cluster"
#: Seconds that the processes of a kind have to stop in good order.
STOP_S: Final = 30.0

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="ZooKeeper, bookies and brokers as processes of this machine."
)

Directory = Annotated[
    str | None, typer.Option("--dir", metavar="DIR", help=f"Directory of everything (./{DIRECTORY}); made if new.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command()
def up(
    directory: Directory = None,
    clusters: Annotated[
        int | None,
        typer.Option("--clusters", help="Clusters that copy to each other, each with all of this (one, alone)."),
    ] = None,
    bookies: Annotated[int | None, typer.Option("--bookies", help="Bookies (3).")] = None,
    brokers: Annotated[int | None, typer.Option("--brokers", help="Brokers (2).")] = None,
    zookeepers: Annotated[
        int | None, typer.Option("--zookeepers", help="Servers of ZooKeeper: 1, 3 or 5 (1); it stays.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="clusterName (local); it stays. Of several: what their names begin with."),
    ] = None,
    broker_port: Annotated[
        int | None, typer.Option("--broker-port", help="Of the first broker's binary protocol (6650); 0: a free one.")
    ] = None,
    web_port: Annotated[
        int | None, typer.Option("--web-port", help="Of the first broker's admin REST (8080); 0: a free one.")
    ] = None,
    zookeeper_port: Annotated[
        int | None, typer.Option("--zookeeper-port", help="The first ZooKeeper's (0: a free one).")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the brokers; may be repeated.")
    ] = None,
    bookie_assignments: Annotated[
        list[str] | None,
        typer.Option("--bookie-set", metavar="KEY=VALUE", help="Set a key of the bookies; may be repeated."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds until all of it must be ready.")] = 120.0,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until SIGTERM or Ctrl-C, and stop the cluster then.")
    ] = False,
    is_json: AsJson = False,
) -> None:
    """Start a cluster, or what is missing of it, and return once it is ready. The processes go on.

    What was asked for is kept: without options, up starts the same again, with its data. With --clusters each cluster
    knows the others, namespace public/default lives in all of them, and ports are those of the first; each other
    cluster has them 10 higher.
    """
    from geminga.app.local.core.local_cluster import OWN_BOOKIE_KEYS, OWN_BROKER_KEYS, settings_from

    _end_on_signals()
    made = _cluster(directory, is_default=directory is None)
    mesh = _mesh(made)
    asked = {
        "bookies": bookies,
        "brokers": brokers,
        "zookeepers": zookeepers,
        "broker_port": broker_port,
        "web_port": web_port,
        "zookeeper_port": zookeeper_port,
        "broker_settings": settings_from("--set", assignments or (), OWN_BROKER_KEYS),
        "bookie_settings": settings_from("--bookie-set", bookie_assignments or (), OWN_BOOKIE_KEYS),
    }
    known = mesh.load()
    try:
        if clusters is None and known is None:
            _print(made, made.up({**asked, "cluster": cluster}, within_s=timeout_s), is_json=is_json)
        else:
            _print_all(mesh, mesh.up(clusters, cluster, asked, within_s=timeout_s), is_json=is_json)
    except KeyboardInterrupt:
        _fail("interrupted: what was started has been ended")
    if foreground:
        _wait_for_signal()
        _down(made, mesh, within_s=STOP_S, delete=False)


@commands.command()
def status(directory: Directory = None, is_json: AsJson = False) -> None:
    """Tell what each process of the cluster is doing; exit code 1 unless all of them are ready."""
    made = _cluster(directory)
    mesh = _mesh(made)
    if (known := mesh.load()) is not None:
        all_found = mesh.status(known)
        _print_all(mesh, all_found, is_json=is_json)
        if len(all_found) < len(known.names) or not all(_is_ready(one.members) for one in all_found):
            raise typer.Exit(1)
        return
    state = made.load()
    if state is None:
        raise made.missing()
    found = made.status(state)
    _print(made, found, is_json=is_json)
    if not _is_ready(found):
        raise typer.Exit(1)


@commands.command()
def down(
    directory: Directory = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove everything that the cluster stored.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds for brokers, bookies, ZooKeeper each; then they are killed.")
    ] = STOP_S,
) -> None:
    """Stop the cluster: brokers, then bookies, then ZooKeeper. Its data stay for the next up."""
    made = _cluster(directory)
    _down(made, _mesh(made), within_s=timeout_s, delete=delete)


def _down(made: LocalCluster, mesh: LocalMesh, *, within_s: float, delete: bool) -> None:
    known = mesh.load()
    if known is None:
        made.down(within_s=within_s, delete=delete)
    else:
        mesh.down(known, within_s=within_s, delete=delete)


def _mesh(made: LocalCluster) -> LocalMesh:
    """Of the same directory."""
    from geminga.app.lifecycle.paragraphs import print_paragraph
    from geminga.app.local.local_mesh import LocalMesh

    return LocalMesh(made.directory, print_paragraph)


def _cluster(directory: str | None, *, is_default: bool = False) -> LocalCluster:
    from pathlib import Path

    from geminga.app.lifecycle.paragraphs import print_paragraph
    from geminga.app.local.local_cluster import LocalCluster

    path = Path(os.path.abspath(DIRECTORY if directory is None else directory))
    if is_default:
        print_paragraph(f"no --dir: everything is kept in {path}")
    return LocalCluster(path, print_paragraph)


def _is_ready(found: list[MemberStatus]) -> bool:
    from geminga.app.local.core.local_cluster import MemberState

    return all(item.state is MemberState.READY for item in found)


def _document(made: LocalCluster, state: ClusterState, found: list[MemberStatus]) -> dict[str, object]:
    from geminga.app.local.core.local_cluster import MemberKind

    brokers = [
        item.member.ports for item in found if item.kind is MemberKind.BROKER and item.member and item.member.ports
    ]
    broker_hosts = ",".join(f"127.0.0.1:{ports['broker']}" for ports in brokers)
    web_hosts = ",".join(f"127.0.0.1:{ports['web']}" for ports in brokers)
    return {
        "dir": str(made.directory),
        "clusterName": state.plan.cluster,
        "isReady": _is_ready(found),
        "brokerServiceUrl": f"pulsar://{broker_hosts}" if brokers else None,
        "webServiceUrl": f"http://{web_hosts}" if brokers else None,
        "metadataStoreUrl": state.metadata_url or None,
        "members": [
            {
                "name": item.name,
                "kind": item.kind.value,
                "state": item.state.value,
                "pid": item.member.pid if item.member else None,
                "ports": dict(item.member.ports) if item.member else {},
                "log": str(made.log_of(item.name)),
            }
            for item in found
        ],
    }


def _print(made: LocalCluster, found: list[MemberStatus], *, is_json: bool) -> None:
    import json

    state = made.load()
    if state is None:
        raise made.missing()
    document = _document(made, state, found)
    if is_json:
        print(json.dumps(document, indent=2), flush=True)
        return
    _print_table(made, state, found, document)


def _print_all(mesh: LocalMesh, found: list[ClusterStatus], *, is_json: bool) -> None:
    """Of each cluster as of one, one behind the other."""
    import json

    documents = []
    for one in found:
        state = one.cluster.load()
        if state is None:
            raise one.cluster.missing()
        document = _document(one.cluster, state, one.members)
        documents.append(document)
        if not is_json:
            _print_table(one.cluster, state, one.members, document)
    if is_json:
        is_ready = all(document["isReady"] for document in documents)
        print(
            json.dumps({"dir": str(mesh.directory), "isReady": is_ready, "clusters": documents}, indent=2), flush=True
        )


def _print_table(
    made: LocalCluster, state: ClusterState, found: list[MemberStatus], document: dict[str, object]
) -> None:
    rows = [("NAME", "STATE", "PID", "PORTS", "LOG")]
    for item in found:
        ports = ", ".join(f"{key} {port}" for key, port in item.member.ports.items()) if item.member else ""
        pid = str(item.member.pid) if item.member else "-"
        rows.append((item.name, item.state.value, pid, ports or "-", str(made.log_of(item.name))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    urls = document["brokerServiceUrl"] or "no broker", document["webServiceUrl"], document["metadataStoreUrl"]
    print(f"cluster {state.plan.cluster}: {'  '.join(str(url) for url in urls if url)}", flush=True)


def _end_on_signals() -> None:
    """What is being started is ended at SIGTERM and at the end of the terminal as at Ctrl-C."""
    import signal

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupt)


def _wait_for_signal() -> None:
    import signal

    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass


def _fail(sentence: str) -> None:
    from geminga.app.lifecycle.paragraphs import print_paragraph

    print_paragraph(sentence)
    raise typer.Exit(1)
