"""``geminga ...`` as a process of its own that has its imports behind it: forked from one that did nothing else.

Tests start hundreds of brokers and bookies, and two thirds of what a start costs are imports, the same each time. A
:class:`WarmStarts` has one helper process that has imported what commands and their servers use and runs no thread; it
forks once for each start. What is forked gets the arguments, environment, directory and descriptors that a ``Popen``
would have given it, and runs the same ``main``. It is a process like any other: it is killed, paused, and its exit code
is the kernel's. Tests whose subject is the start itself use ``subprocess``.

Protocol, over a Unix stream socket: a request is a JSON object ``{"arguments", "environment", "directory"}`` with its
length in front (4 bytes, big endian), and with it four descriptors: standard input, output, error, and a socket that is
the answer's. There the process id comes first and, when the process is over, its exit code, 4 bytes each, as
``subprocess`` counts them (negative: the signal).
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn, Self

ROOT: Final = Path(__file__).resolve().parents[1]
#: Modules that a broker or a bookie has loaded after its first requests.
_LOADED: Final = (
    "geminga.app.servers.autorecovery_process",
    "geminga.app.configuration.bookie_config",
    "geminga.app.servers.bookie_process",
    "geminga.app.commands.cli",
    "geminga.app.servers.cluster_broker",
    "geminga.app.configuration.config",
    "geminga.app.servers.process",
    "geminga.app.servers.shared_storage",
    "geminga.broker.connection.connection",
    "geminga.broker.handlers",
    "geminga.broker.composition.metrics",
    "geminga.broker.system_topics.namespace_events",
    "geminga.broker.upkeep.policies",
    "geminga.broker.registry.new_topics",
    "geminga.broker.rest.application",
    "geminga.broker.rest.http.http_connection",
    "geminga.broker.admission.topic_schemas",
    "geminga.broker.topic.registered_parts",
    "geminga.broker.upkeep.orphan_ledgers",
    "geminga.managed_ledger.opening",
    "uvicorn",
)
_BYTES: Final = 4
_REQUEST_BYTES_MAX: Final = 1 << 20
#: What decides how an interpreter starts: who wants it another way gets an interpreter of his own.
_OF_INTERPRETER: Final = ("PYTHON", "LD_", "COVERAGE")


class WarmStarts:
    """The helper, which is started with the first start, and ends with this process."""

    def __init__(self) -> None:
        self._helper: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._environment = _of_interpreter(os.environ)

    def start(self, command: Sequence[str], *, stderr: IO[str], env: Mapping[str, str]) -> WarmProcess | None:
        """Start ``python -m geminga ...``; None if ``command`` or ``env`` ask for another interpreter.

        Standard input is empty, standard output a pipe of text.
        """
        if list(command[:3]) != [sys.executable, "-m", "geminga"] or _of_interpreter(env) != self._environment:
            return None
        requests = self._connected()
        request = {"arguments": [*command[3:]], "environment": dict(env), "directory": os.getcwd()}
        body = json.dumps(request).encode()
        framed = len(body).to_bytes(_BYTES, "big") + body
        reading, writing = os.pipe()
        answers, answering = socket.socketpair()
        empty = os.open(os.devnull, os.O_RDONLY)
        try:
            sent = socket.send_fds(requests, [framed], [empty, writing, stderr.fileno(), answering.fileno()])
            requests.sendall(framed[sent:])
        finally:
            os.close(empty)
            os.close(writing)
            answering.close()
        return WarmProcess(command, answers, os.fdopen(reading, encoding="utf-8"))

    def _connected(self) -> socket.socket:
        if self._helper is None or self._helper.poll() is not None:
            self.close()
            self._requests, theirs = socket.socketpair()
            with theirs:
                self._helper = subprocess.Popen(
                    [sys.executable, "-m", "tools.warm_process", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=ROOT,
                )
        assert self._requests is not None
        return self._requests

    def close(self) -> None:
        """End the helper; what it started goes on."""
        if self._requests is not None:
            self._requests.close()
        if self._helper is not None:
            self._helper.wait()
        self._helper = self._requests = None


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in environment.items()
        if key.startswith(_OF_INTERPRETER) and key != "PYTHONPATH" and value
    }


class WarmProcess:
    """What :class:`subprocess.Popen` is for a child, for a process that the helper started."""

    def __init__(self, args: Sequence[str], answers: socket.socket, stdout: IO[str]) -> None:
        self.args = list(args)
        self.stdout: IO[str] = stdout
        self.returncode: int | None = None
        self._answers = answers
        self.pid = self._number()

    def _number(self) -> int:
        got = self._answers.recv(_BYTES, socket.MSG_WAITALL)
        if len(got) < _BYTES:
            raise ChildProcessError(f"the helper that starts processes is gone: {self.args}")
        return int.from_bytes(got, "big", signed=True)

    def poll(self) -> int | None:
        """The exit code; None: it is running."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, in at most ``timeout`` seconds; raises ``subprocess.TimeoutExpired``."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._answers, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                self.returncode = self._number()
                self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To a process that is there; to one that is over, nothing."""
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """What is left of its output (errors go to the log), once it is over."""
        self.wait(timeout)
        with self.stdout:
            return self.stdout.read(), ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()


class _Helper:
    """Forks for each request, and tells the exit codes."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._requests:
                    if not self._start_one():
                        return
                else:
                    self._tell_end(key)

    def _start_one(self) -> bool:
        head, descriptors, _, _ = socket.recv_fds(self._requests, _BYTES, 4)
        if not head:
            return False
        while len(head) < _BYTES:
            head += self._requests.recv(_BYTES - len(head))
        length = int.from_bytes(head, "big")
        assert 0 < length <= _REQUEST_BYTES_MAX
        request = json.loads(self._requests.recv(length, socket.MSG_WAITALL))
        pid = os.fork()
        if not pid:
            _become(request, descriptors[:3])
        answers = socket.socket(fileno=descriptors[3])
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))
        _tell(answers, pid)
        return True

    def _tell_end(self, key: selectors.SelectorKey) -> None:
        pid, answers = key.data
        self._selector.unregister(key.fd)
        os.close(key.fd)
        _, status = os.waitpid(pid, 0)
        _tell(answers, os.waitstatus_to_exitcode(status))
        answers.close()


def _tell(answers: socket.socket, number: int) -> None:
    try:
        answers.sendall(number.to_bytes(_BYTES, "big", signed=True))
    except BrokenPipeError:  # nobody waits for it
        return


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """In the child: the program that was asked for."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = ["geminga", *request["arguments"]]
    from geminga.app.commands.cli import main

    code: object = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    # As an interpreter ends: what is buffered goes out, threads that are no daemons are waited for.
    _finish(code)


def _finish(code: object) -> NoReturn:
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def main() -> None:
    """Of the helper: ``python -m tools.warm_process DESCRIPTOR``."""
    import gc
    from importlib import import_module

    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    # What is interrupted at the terminal is the tests; they end the helper.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for module in _LOADED:
        import_module(module)
    import_module("geminga.broker.rest.families").all_rows()
    gc.freeze()
    gc.enable()
    _Helper(requests).run()


if __name__ == "__main__":
    main()
