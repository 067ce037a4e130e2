"""A broker in a network namespace of its own, of which nothing but mapped ports can be reached: as in a container.

``python -m tools.mapped_ports FOLDER PORT,PORT -- COMMAND`` enters a new network namespace (and a user namespace, so
that nobody has to be root), passes on what comes to ``FOLDER/PORT.socket`` and becomes the command. Outside,
:class:`Mapping` listens and leads to those sockets: a socket of the file system is the same in both.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Mapping_
from pathlib import Path
from types import TracebackType
from typing import Final

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
    program = "from tools.mapped_ports import enter_namespace; enter_namespace()"
    done = subprocess.run([sys.executable, "-c", program], env=_environment(), capture_output=True, text=True)
    return done.stderr.splitlines()[-1] if done.returncode else ""


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    # What one side ended, the other side is told.
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def _join(near: socket.socket, connect: Callable[[], socket.socket]) -> None:
    """Until one side ends."""
    with near:
        try:
            far = connect()
        except OSError:
            return
        with far:
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _pass_on(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    """Each connection gets another one, until the listener is shut down; returns when all have ended."""
    threads = []
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            break
        threads.append(threading.Thread(target=_join, args=(near, connect), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _to_file(path: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(str(path))
    except OSError:
        end.close()
        raise
    return end


class Mapping:
    """Ports of this machine that lead to ports of the namespace, from the beginning to ``close``."""

    def __init__(self, ports: dict[int, int]) -> None:
        """Ports inside -> ports here, 0: the kernel's choice. Raises OSError where one is taken."""
        self.folder = Path(tempfile.mkdtemp(prefix="mapped-"))
        #: Port inside -> port here.
        self.ports: dict[int, int] = {}
        self._threads: list[threading.Thread] = []
        self._listeners = {port: socket.create_server(("127.0.0.1", here)) for port, here in ports.items()}
        for port, listener in self._listeners.items():
            self.ports[port] = listener.getsockname()[1]
            arguments = (listener, functools.partial(_to_file, self.folder / f"{port}.socket"))
            self._threads.append(threading.Thread(target=_pass_on, args=arguments, name=f"mapped {port}", daemon=True))
            self._threads[-1].start()

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command, in a namespace whose ports are mapped."""
        ports = ",".join(map(str, self.ports))
        return [sys.executable, "-m", "tools.mapped_ports", str(self.folder), ports, "--", *command]

    def close(self) -> None:
        """No port is mapped any more; waits for the connections, which end with the broker."""
        for listener in self._listeners.values():
            listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for listener in self._listeners.values():
            listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class MappedStandalone(StandaloneProcess):
    """``geminga standalone`` of which only what is mapped can be reached, as in a container."""

    def __init__(
        self,
        data: Path,
        *,
        log: Path,
        ports: Sequence[int] = (),
        settings: Mapping_[str, object] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """``ports``: that of the broker, that of HTTP and others, mapped with their numbers.

        None: 6650 and 8080, mapped to ports of the kernel's choice.
        """
        self.mapping = Mapping({port: port for port in ports} or {BROKER_PORT: 0, WEB_PORT: 0})
        broker_port, web_port, *_ = self.mapping.ports
        super().__init__(
            data,
            log=log,
            settings=settings,
            arguments=arguments,
            broker_port=broker_port,
            web_port=web_port,
            environment=_environment(),
        )

    def reached(self, port: int) -> int:
        """By the mapped one."""
        return self.mapping.ports[port]

    def command(self) -> list[str]:
        """In a namespace."""
        return self.mapping.wrapped(super().command())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.mapping.close()


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
            target=_pass_on, args=(listener, functools.partial(socket.create_connection, ("127.0.0.1", port)))
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
