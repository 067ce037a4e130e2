"""``geminga backup create | verify | restore``: all that a standalone or a cluster keeps, copied while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl
from geminga.app.commands.doctor_commands import AuthParams, AuthPlugin, Trust
from geminga.app.commands.server_options import BookKeeperFiles, MetadataUri, Settings, settings_of, with_options

if TYPE_CHECKING:
    from geminga.app.servers.autorecovery_process import AutoRecoveryProcessConfig
    from geminga.app.storage.core.backup_format import BackupFile, BackupManifest
    from geminga.app.storage.core.restore_marks import RestoredSizes

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Copies of all that a standalone or a cluster keeps: make, check, bring back.",
)

Backup = Annotated[str, typer.Argument(metavar="DIR", help="The directory of the backup.")]
Json = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]
RateLimit = Annotated[
    int, typer.Option("--rate-limit", metavar="BYTES", min=0, help="Copy at most so much a second; 0: no limit.")
]


class BackupOptions(NamedTuple):
    """What making a backup and bringing it back are told alike."""

    #: Which cluster; neither of them: it is of a standalone.
    metadata: str | None
    config: Sequence[str]
    assignments: Sequence[str]
    rate_limit: int
    is_json: bool

    @property
    def is_of_cluster(self) -> bool:
        """Whether a cluster is named."""
        return self.metadata is not None or bool(self.config)


def _given(
    metadata: MetadataUri = None,
    config: BookKeeperFiles = None,
    assignments: Settings = None,
    rate_limit: RateLimit = 0,
    is_json: Json = False,
) -> BackupOptions:
    return BackupOptions(metadata, config or (), assignments or (), rate_limit, is_json)


@commands.command()
@with_options(_given)
def create(
    given: BackupOptions,
    backup: Backup,
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="Of this stopped standalone; without, of the one that runs.")
    ] = "",
    whole: Annotated[bool, typer.Option("--whole", help="Copy also what the backup there has already.")] = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    auth_plugin: AuthPlugin = "",
    auth_params: AuthParams = "",
    trust: Trust = "",
) -> None:
    """Make a backup in DIR; one that is there is replaced when it is whole.

    Of a standalone: on its machine and as its user. Of a cluster: where its metadata store (--metadata, or --config)
    and its bookies can be reached.
    """
    import asyncio
    import os

    from geminga.app.commands.credentials import ClientSecurity
    from geminga.app.commands.doctor_commands import run_admin
    from geminga.app.handles.backups import back_up_running, back_up_stopped

    done: Mapping[str, Any]
    directory = os.path.abspath(backup)
    if given.is_of_cluster:
        if data:
            raise typer.BadParameter("--data is of a standalone, --metadata and --config are of a cluster: give one")
        done = _of_cluster(given, directory, whole=whole)
    elif given.assignments:
        raise typer.BadParameter("--set is for a cluster: give --metadata or --config as well")
    elif data:
        manifest, progress = asyncio.run(
            back_up_stopped(os.path.abspath(data), directory, whole=whole, rate_limit=given.rate_limit)
        )
        done = {**manifest.facts(), **progress.document()}
    else:
        security = ClientSecurity(auth_plugin, auth_params, trust)
        done = run_admin(
            admin_url,
            security,
            lambda admin: back_up_running(admin, directory, whole=whole, told=_tell_state, rate_limit=given.rate_limit),
        )
    if given.is_json:
        _print_json({"directory": directory, **{key: done[key] for key in done if key not in ("directory", "state")}})
    else:
        print(
            f"backup {done['backupId']} in {directory}: everything acknowledged before {_moment(done['asOfMs'])}, "
            f"{done['sizeBytes']} bytes in {done['files']} files, {done['bytesCopied']} of them copied now"
        )
        for ledger_id in done.get("lostLedgers", ()):
            print(f"  ledger {ledger_id} is named by a topic and is not in the cluster: it is not in the backup either")


def _of_cluster(given: BackupOptions, directory: str, *, whole: bool) -> Mapping[str, Any]:
    from geminga.app.handles.cluster_backups import back_up_cluster
    from geminga.app.servers.autorecovery_process import connected

    loaded, _ = _reached(given, "a backup of a cluster")
    connecting = connected(loaded, while_restored=False, is_whole=True)
    return back_up_cluster(connecting, directory, whole=whole, told=_tell_state, rate_limit=given.rate_limit)


def _to_cluster(given: BackupOptions, directory: str) -> Mapping[str, Any]:
    from geminga.app.handles.cluster_backups import RestoreTarget, restore_cluster
    from geminga.app.servers.autorecovery_process import connected
    from geminga.metadata.core.zookeeper_address import check_request, check_zookeeper_path

    loaded, sizes = _reached(given, "restoring to a cluster")
    address = loaded.metadata

    def check(path: str, value: bytes) -> None:
        check_zookeeper_path(path)
        check_request(address.chroot + path, value)

    place = RestoreTarget(str(address), check)
    connecting = connected(loaded)
    limit = given.rate_limit
    return restore_cluster(connecting, directory, place, sizes=sizes, told=_tell_restored, rate_limit=limit)


def _reached(given: BackupOptions, who: str) -> tuple[AutoRecoveryProcessConfig, RestoredSizes]:
    """How a cluster is reached, by the keys of a bookie's file, and how ledgers are spread over its bookies."""
    import os

    from geminga.app.configuration.config import build_settings
    from geminga.app.configuration.config_sources import collect_entries
    from geminga.app.servers.autorecovery_process import load_autorecovery_config
    from geminga.app.storage.core.restore_marks import RestoredSizes

    settings = settings_of(given.assignments, {"metadataServiceUri": given.metadata})
    loaded = load_autorecovery_config(given.config, os.environ, settings, who=who)
    entries = collect_entries(given.config, os.environ, given.assignments)
    return loaded, build_settings(RestoredSizes, {entry.key: entry for entry in entries})


@commands.command()
def verify(backup: Backup, is_json: Json = False) -> None:
    """Read a whole backup: every checksum, and whether it can be opened. Ends with 1 where something is wrong."""
    import os

    from geminga.app.handles.backups import carried_out
    from geminga.app.storage import backup_reading

    directory = os.path.abspath(backup)
    found = carried_out(lambda runtime: backup_reading.verify(runtime, directory, _tell_file))
    if is_json:
        _print_json({"directory": directory, **found.manifest.facts(), "faults": found.faults})
    else:
        print(f"{_summary(directory, found.manifest)}: {'as it was made' if not found.faults else 'damaged'}")
        for fault in found.faults:
            print(f"  {fault}")
    if found.faults:
        raise typer.Exit(1)


@commands.command()
@with_options(_given)
def restore(
    given: BackupOptions,
    backup: Backup,
    data: Annotated[
        str, typer.Argument(metavar="[DATA]", show_default=False, help="The data directory to make: new, or empty.")
    ] = "",
) -> None:
    """Bring a backup back, which is verified before.

    To DATA, on which geminga standalone starts; or to a cluster (--metadata, or --config) in which bookies run, and no
    broker ever did. Cut off on the way to a cluster, the same command goes on.
    """
    import os

    if given.is_of_cluster == bool(data):
        raise typer.BadParameter("expected either DATA, a directory, or --metadata (or --config) of a cluster")
    if data and given.assignments:
        raise typer.BadParameter("--set is for a cluster: give --metadata or --config as well")
    directory = os.path.abspath(backup)
    if not data:
        _print_restored(directory, _to_cluster(given, directory), is_json=given.is_json)
        return
    from geminga.app.handles.backups import carried_out
    from geminga.app.storage import backup_reading

    target = os.path.abspath(data)
    manifest = carried_out(
        lambda runtime: backup_reading.restore(runtime, directory, target, _tell_file, rate_limit=given.rate_limit)
    )
    if given.is_json:
        _print_json({"directory": directory, "data": target, **manifest.facts()})
    elif manifest.is_of_cluster:
        from geminga.app.storage.cluster_restore import clusters_in

        name = named(clusters_in(target))
        print(f"{_summary(directory, manifest)}: restored to {target}: geminga standalone --data {target}{name}")
    else:
        print(
            f"{_summary(directory, manifest)}: restored to {target}. Stop the server that it was made of, if it runs "
            f"still, before you start this one: geminga standalone --data {target}"
        )


def named(clusters: Sequence[str]) -> str:
    """The option by which a broker is told the name of its cluster, which is one of ``clusters``."""
    if len(clusters) > 1:
        return f" --set clusterName=NAME, where NAME is its own of {', '.join(clusters)}"
    return "".join(f" --set clusterName={one}" for one in clusters)


def _print_restored(directory: str, done: Mapping[str, Any], *, is_json: bool) -> None:
    if is_json:
        _print_json({"directory": directory, **done})
        return
    place = done["metadata"]
    name = named(done["clusters"])
    what = (
        "was restored before, nothing was changed"
        if done["wasDone"]
        else f"restored: {done['ledgers']} ledgers ({done['ledgersKept']} were there), {done['nodes']} nodes"
    )
    print(
        f"backup {done['backupId']} in {directory}, of {_moment(done['asOfMs'])}, to {place}: {what}. Stop the cluster "
        f"that it was made of, if it runs still, before you start a broker: geminga broker --metadata {place}{name}"
    )


def _summary(directory: str, manifest: BackupManifest) -> str:
    return (
        f"backup {manifest.backup_id} in {directory}, number {manifest.serial} there, of {_moment(manifest.as_of_ms)}, "
        f"{manifest.size_bytes} bytes in {len(manifest.files)} files"
    )


def _moment(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_json(document: Mapping[str, Any]) -> None:
    import json

    print(json.dumps(document))


def _tell(text: str) -> None:
    """Progress is for who looks at a terminal."""
    import sys

    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def _tell_state(state: Mapping[str, Any]) -> None:
    _tell(f"{state['bytesCopied']} bytes copied, {state['bytesKept']} were there")


def _tell_restored(state: Mapping[str, Any]) -> None:
    _tell(
        f"{state['ledgersDone']} of {state['ledgers']} ledgers, {state['bytesDone']} of {state['bytes']} bytes, "
        f"{state['nodesDone']} of {state['nodes']} nodes"
    )


def _tell_file(file: BackupFile) -> None:
    _tell(f"{file.name}, {file.size_bytes} bytes")
