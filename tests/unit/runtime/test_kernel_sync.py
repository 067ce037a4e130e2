"""Syncs as requests to the kernel: answers, refusals, errors, and what the disk does about them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct

import pytest

from geminga.runtime import ThreadedDisk
from geminga.runtime.core.direct_writes import PAUSE_FIRST_S, SLOW_WRITE_S
from geminga.runtime.disk_threads import DIRECT_BYTES_MAX
from geminga.runtime.kernel_sync import KernelSyncs
from geminga.runtime.spawn import set_fatal_handler

SUBMIT, GET, DESTROY = 1, 2, 3


def with_syncs(story):
    async def main():
        syncs = KernelSyncs.open(asyncio.get_running_loop())
        if syncs is None:
            pytest.skip("this kernel takes no syncs")
        try:
            await story(syncs)
        finally:
            syncs.close()

    asyncio.run(main())


class ScriptedKernel:
    """What the system calls answer."""

    def __init__(self, results, *, refusal=0):
        self.results, self.refusal = results, refusal
        self.requests = []
        self.eventfd = -1

    def __call__(self, number, *arguments):
        if number.value == SUBMIT:
            if self.refusal:
                ctypes.set_errno(self.refusal)
                return -1
            request = ctypes.string_at(arguments[2][0], 64)
            self.requests.append(request)
            self.eventfd = struct.unpack_from("=I", request, 60)[0]
            return 1
        if number.value == GET:
            events = b"".join(
                struct.pack("=QQqq", struct.unpack_from("=Q", request)[0], 0, result, 0)
                for request, result in zip(self.requests, self.results, strict=True)
            )
            ctypes.memmove(arguments[3], events, len(events))
            return len(self.requests)
        return 0


def counted_syncs(monkeypatch):
    """The descriptors that Python synced."""
    synced = []
    real = os.fdatasync  # noqa: TID251
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), real(fd))[1])
    return synced


def test_sync_is_answered_later_once_for_each_request(tmp_path):
    async def story(syncs):
        with (tmp_path / "f").open("wb", buffering=0) as file:
            done = [asyncio.get_running_loop().create_future() for _ in range(20)]
            for future in done:
                file.write(b"x")
                assert syncs.submit(file.fileno(), future.set_result)
            assert not any(future.done() for future in done)
            assert await asyncio.gather(*done) == [None] * 20

    with_syncs(story)


def test_file_that_can_not_be_synced_is_refused():
    async def story(syncs):
        reading, writing = os.pipe()
        try:
            assert not syncs.submit(writing, lambda error: pytest.fail("was refused"))
        finally:
            os.close(reading)
            os.close(writing)
        assert syncs.is_refused

    with_syncs(story)


def test_errors_of_the_kernel_reach_who_asked_and_a_raising_one_keeps_none_from_hearing():
    async def main():
        kernel = ScriptedKernel([0, -errno.EIO, 0])
        syncs = KernelSyncs(asyncio.get_running_loop(), kernel, (0, DESTROY, SUBMIT, GET), 0)
        failed, fine = (asyncio.get_running_loop().create_future() for _ in range(2))
        reported = []
        set_fatal_handler(lambda what, error: reported.append(str(error)))

        def raises(error):
            raise RuntimeError("a bug")

        for done in (raises, failed.set_result, fine.set_result):
            assert syncs.submit(7, done)
        os.eventfd_write(kernel.eventfd, 3)
        assert await fine is None
        assert (await failed).errno == errno.EIO
        assert reported == ["a bug"]
        assert [struct.unpack_from("=HhI", request, 16) for request in kernel.requests] == [(3, 0, 7)] * 3
        syncs.close()

    asyncio.run(main())


def test_refusal_for_now_is_told_apart_from_one_for_good():
    async def main():
        loop = asyncio.get_running_loop()
        for refusal, is_refused in ((errno.EAGAIN, False), (errno.EINVAL, True), (errno.EPERM, True)):
            syncs = KernelSyncs(loop, ScriptedKernel([], refusal=refusal), (0, DESTROY, SUBMIT, GET), 0)
            assert not syncs.submit(7, lambda error: pytest.fail("was refused"))
            assert syncs.is_refused is is_refused
            syncs.close()

    asyncio.run(main())


@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EINVAL])
def test_append_whose_sync_is_refused_is_synced_by_its_lane(tmp_path, monkeypatch, refusal):
    synced = counted_syncs(monkeypatch)

    async def main():
        disk = ThreadedDisk()
        kernel = ScriptedKernel([], refusal=refusal)
        disk._kernel = KernelSyncs(asyncio.get_running_loop(), kernel, (0, DESTROY, SUBMIT, GET), 0)
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        for number in range(3):
            future = asyncio.get_running_loop().create_future()
            disk.append(file, number, [b"%d" % number], sync=True, done=future.set_result)
            assert await future is None
            assert len(synced) == number + 1
        assert disk._uses_kernel is (refusal == errno.EAGAIN)
        await disk.close()

    asyncio.run(main())
    assert (tmp_path / "f").read_bytes() == b"012"


def test_large_append_and_one_after_a_slow_write_hop(tmp_path, monkeypatch):
    """Counted by who calls fdatasync: a lane does, the kernel does not by way of Python."""
    synced = counted_syncs(monkeypatch)
    now_s, real = [0.0], os.pwrite

    def slow_write(fd, data, offset):
        now_s[0] += 2 * SLOW_WRITE_S
        return real(fd, data, offset)

    async def main():
        disk = ThreadedDisk(monotonic=lambda: now_s[0])
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)

        async def append(*buffers):
            future = asyncio.get_running_loop().create_future()
            disk.append(file, 0, buffers, sync=True, done=future.set_result)
            assert await future is None

        await append(b"x")
        if synced:
            pytest.skip("this kernel takes no syncs")
        await append(bytes(DIRECT_BYTES_MAX))
        assert not synced
        await append(bytes(DIRECT_BYTES_MAX), b"x")
        assert len(synced) == 1
        with monkeypatch.context() as slowly:
            slowly.setattr(os, "pwrite", slow_write)
            await append(b"x")
            assert len(synced) == 1
        await append(b"x")
        assert len(synced) == 2
        now_s[0] += PAUSE_FIRST_S
        await append(b"x")
        assert len(synced) == 2
        await disk.close()

    asyncio.run(main())
