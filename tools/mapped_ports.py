"""A broker in a network namespace of its own, of which nothing but mapped ports can be reached: as in a container.

``python -m tools.mapped_ports FOLDER PORT,PORT -- COMMAND`` enters a new network namespace (and a user namespace, so that
nobody has to be root), passes on what comes to ``FOLDER/PORT.socket`` and becomes the command. Outside, :class:`Mapping`
listens at ports of the kernel's choice and leads to those sockets: a socket of the file system is the same in both.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.standalone_process import ROOT, StandaloneProcess

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1
#: Flags of an interface, by their names in Linux.
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
_IFREQ: Final = struct.Struct("16sh14x")
#: Inside, where nothing else listens.
BROKER_PORT: Final = 6650
WEB_PORT: Final = 8080


def enter_namespace() -> None:
    """This process gets a network of its own, with loopback alone; raises OSError where that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace is not permitted here")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0))
        _, flags = _IFREQ.unpack(answer)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


def why_not_permitted() -> str:
    """Why namespaces can not be entered here; empty if they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    child = os.fork()
    if not child:
        try:
            enter_namespace()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"network namespaces are not permitted here: {os.strerror(code)}" if code else ""


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def _pass_on(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    """Each connection gets another one, until the listener is closed."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = connect()
        except OSError:
            near.close()
            continue
        for ends in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=ends, daemon=True, name="mapped port").start()


def _to_file(path: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(str(path))
    return end


class Mapping:
    """Ports of this machine that lead to ports of the namespace, from ``open`` to ``close``."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mapped-"))
        self._listeners: list[socket.socket] = []
        #: Port inside -> port here.
        self.ports: dict[int, int] = {}
        for port in ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self.ports[port] = listener.getsockname()[1]
            path = self.folder / f"{port}.socket"
            arguments = (listener, lambda path=path: _to_file(path))
            threading.Thread(target=_pass_on, args=arguments, daemon=True, name=f"mapped {port}").start()

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command, in a namespace whose ports are mapped."""
        ports = ",".join(map(str, self.ports))
        return [sys.executable, "-m", "tools.mapped_ports", str(self.folder), ports, "--", *command]

    def close(self) -> None:
        """No port is mapped any more."""
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class MappedStandalone(StandaloneProcess):
    """``geminga standalone`` of which only :attr:`service_url` and :attr:`web_url` can be reached, as in a container."""

    def __init__(self, data: Path, *, log: Path, arguments: Sequence[str] = (), **settings: object) -> None:
        self.mapping = Mapping((BROKER_PORT, WEB_PORT))
        super().__init__(
            data,
            log=log,
            settings=settings,
            arguments=arguments,
            broker_port=BROKER_PORT,
            web_port=WEB_PORT,
            environment={"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )

    @property
    def service_url(self) -> str:
        """By the mapped port."""
        return f"pulsar://127.0.0.1:{self.mapping.ports[BROKER_PORT]}"

    @property
    def web_url(self) -> str:
        """By the mapped port."""
        return f"http://127.0.0.1:{self.mapping.ports[WEB_PORT]}"

    def command(self) -> list[str]:
        """In a namespace."""
        return self.mapping.wrapped(super().command())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.mapping.close()

    def __enter__(self) -> Self:
        self.start()
        return self


def _serve_inside(folder: Path, ports: Sequence[int]) -> None:
    """In a child of the command to be, which ends with it."""
    listeners = {}
    for port in ports:
        path = folder / f"{port}.socket"
        path.unlink(missing_ok=True)
        listeners[port] = socket.socket(socket.AF_UNIX)
        listeners[port].bind(str(path))
        listeners[port].listen(128)
    parent = os.getpid()
    if os.fork():
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    # Whoever waits for the end of the command's output must not wait for this.
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    threads = [
        threading.Thread(
            target=_pass_on, args=(listener, lambda port=port: socket.create_connection(("127.0.0.1", port)))
        )
        for port, listener in listeners.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Does not return."""
    folder, ports, _, *command = arguments
    enter_namespace()
    _serve_inside(Path(folder), [int(port) for port in ports.split(",")])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
