"""Keys for end-to-end encryption, and what encrypts and decrypts with them.

Key readers are the application's: :class:`KeySource` asks them, and neither a slow one nor one that raises holds the
loop or anybody who waits. Batches are made and frames are read without waiting, so keys are there before: a producer
has its data key when it is made and renews it in the background, a consumer holds back what needs a key it has not
asked for yet (:mod:`geminga.client._consuming.key_gate`).

The ciphers load with the first key: most programs never need them, and they would take a fifth of the import.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from geminga.client._api.errors import CryptoError
from geminga.client._api.options import CryptoFailureAction, check_argument
from geminga.client.rules.option_kinds import TEXT
from geminga.model.extras import check_installed
from geminga.runtime import Clock, Raised, Threads, attempt, attempt_await, get_logger, spawn
from geminga.runtime.local_file import read_local_file
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import text_of, texts_of

_log = get_logger(__name__)

#: A producer asks for a new data key after so long, seconds, or so many payloads ...
DATA_KEY_LIFE_S: Final = 4 * 3600.0
DATA_KEY_PAYLOADS: Final = 1 << 30
#: ... and uses the old one no longer than this, while the keys can not be read (GCM's bound for one key is 2^32).
DATA_KEY_LIFE_S_MAX: Final = 2 * DATA_KEY_LIFE_S
DATA_KEY_PAYLOADS_MAX: Final = 1 << 31
#: Seconds until a key that could not be read is asked for again.
KEY_RETRY_S: Final = 1.0
#: Data keys that a consumer remembers; unwrapping one costs about a millisecond.
DATA_KEYS_CACHED_MAX: Final = 1000
#: Where key readers run that are no coroutines: one thread for all of a client.
_LANE: Final = "key reader"


@dataclass(frozen=True, slots=True)
class EncryptionKeyInfo:
    """A key as a reader gives it: PEM, and what travels beside the wrapped data key."""

    key: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)


class CryptoKeyReader:
    """Reads the key pair from two PEM files, whatever the key's name; override the methods for other sources.

    A method may be a coroutine function, which runs on the client's loop. One that is not runs on a thread of the
    client's for key readers, so that it may block; it must not use the client. Either has the operation timeout.
    """

    def __init__(self, public_key_path: str = "", private_key_path: str = "") -> None:
        """A producer needs the public key only, a consumer the private one only. Raises InvalidConfiguration."""
        check_argument("public_key_path", public_key_path, TEXT)
        check_argument("private_key_path", private_key_path, TEXT)
        self.public_key_path = public_key_path
        self.private_key_path = private_key_path

    def get_public_key(
        self, key_name: str, metadata: Mapping[str, str]
    ) -> EncryptionKeyInfo | Awaitable[EncryptionKeyInfo]:
        """The public key called ``key_name``; what it raises becomes a CryptoError."""
        return EncryptionKeyInfo(read_local_file(self.public_key_path))

    def get_private_key(
        self, key_name: str, metadata: Mapping[str, str]
    ) -> EncryptionKeyInfo | Awaitable[EncryptionKeyInfo]:
        """The private key called ``key_name``; ``metadata`` is what the producer's reader gave beside it."""
        return EncryptionKeyInfo(read_local_file(self.private_key_path))


_Method = Callable[[str, Mapping[str, str]], EncryptionKeyInfo | Awaitable[EncryptionKeyInfo]]


class KeySource:
    """A key reader as the client asks it: without holding the loop, for a limited time, and with one kind of error."""

    __slots__ = ("_limit_s", "_reader", "_threads")

    def __init__(self, threads: Threads, reader: CryptoKeyReader, limit_s: float) -> None:
        """Raises MissingExtraError if there is nothing to encrypt or decrypt with."""
        check_installed("cryptography", "End-to-end encryption")
        self._threads = threads
        self._reader = reader
        self._limit_s = limit_s

    async def public_key(self, name: str) -> EncryptionKeyInfo:
        """Raises CryptoError."""
        return await self._key(f"public key {name!r}", self._reader.get_public_key, name, {})

    async def private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Raises CryptoError."""
        return await self._key(f"private key {name!r}", self._reader.get_private_key, name, metadata)

    async def _key(self, what: str, method: _Method, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        outcome = await attempt_await(self._ask(method, name, metadata))
        if not isinstance(outcome, Raised):
            return _checked_key(what, outcome)
        if isinstance(outcome.error, CryptoError):
            raise CryptoError(f"{what}: {outcome.error}") from outcome.error
        raise CryptoError(f"{what}: {outcome}") from outcome.error

    async def _ask(self, method: _Method, name: str, metadata: Mapping[str, str]) -> object:
        try:
            async with asyncio.timeout(self._limit_s):
                if inspect.iscoroutinefunction(method):
                    return await method(name, metadata)
                found = await self._threads.call(_LANE, lambda: method(name, metadata))
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            raise CryptoError(f"the key reader gave nothing within {self._limit_s:g} s") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise CryptoError("the key reader was cancelled") from None


def _checked_key(what: str, found: object) -> EncryptionKeyInfo:
    if not isinstance(found, EncryptionKeyInfo) or not isinstance(found.key, bytes):
        raise CryptoError(f"{what}: the key reader gave {type(found).__name__}: expected EncryptionKeyInfo with bytes")
    texts = attempt(lambda: [text for pair in found.metadata.items() for text in pair])
    if isinstance(texts, Raised) or not all(isinstance(text, str) for text in texts):
        raise CryptoError(f"{what}: the key reader gave metadata that is no mapping of text by text")
    return found


class MessageEncryptor:
    """Encrypts the payloads of one producer. :meth:`begin` first; later keys come in the background."""

    __slots__ = (
        "_action",
        "_clock",
        "_data_key",
        "_key_names",
        "_keys",
        "_made_s",
        "_payloads",
        "_renewing",
        "_retry_s",
        "_source",
        "_why",
    )

    def __init__(self, clock: Clock, source: KeySource, key_names: Sequence[str], action: CryptoFailureAction) -> None:
        self._clock = clock
        self._source = source
        self._key_names = sorted(set(key_names))
        self._action = action
        self._data_key = b""
        #: The data key for each named key.
        self._keys: list[pb.EncryptionKeys] = []
        self._made_s = 0.0
        #: Payloads encrypted with the present data key: the nonce counts them.
        self._payloads = 0
        self._renewing: asyncio.Task[None] | None = None
        #: Not before that, monotonic seconds, after a failure.
        self._retry_s = 0.0
        #: What the last attempt to read the keys raised.
        self._why: Exception | None = None

    async def begin(self) -> None:
        """Take the first data key; raises CryptoError if a public key can not be had, unless that is to be sent in the
        clear."""
        if self._action is CryptoFailureAction.FAIL:
            await self.renew()
        else:
            await self._renew_quietly()

    async def renew(self) -> None:
        """Take a new data key; raises CryptoError if a public key can not be had."""
        from geminga.wire.pulsar import encryption

        data_key = encryption.new_data_key()
        keys = []
        for name in self._key_names:
            info = await self._source.public_key(name)
            wrapped = attempt(encryption.wrap_data_key, info.key, data_key)
            if isinstance(wrapped, Raised):
                raise CryptoError(f"public key {name!r}: {wrapped.error}") from wrapped.error
            entry = pb.EncryptionKeys(key=name, value=wrapped)
            for key, value in info.metadata.items():
                entry.metadata.add(key=key, value=value)
            keys.append(entry)
        self._data_key, self._keys, self._payloads = data_key, keys, 0
        self._made_s = self._clock.monotonic()
        self._why = None

    async def _renew_quietly(self) -> None:
        try:
            outcome = await attempt_await(self.renew())
        finally:
            self._renewing = None
        if isinstance(outcome, Raised):
            self._why = outcome.error
            self._retry_s = self._clock.monotonic() + KEY_RETRY_S
            _log.warning("no new data key: %s", outcome.error)

    def __call__(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload encrypted, ``metadata`` saying how; raises CryptoError, unless failures are sent in the clear."""
        from geminga.wire.pulsar import encryption

        now_s = self._clock.monotonic()
        age_s = now_s - self._made_s
        if not self._data_key or self._payloads >= DATA_KEY_PAYLOADS or age_s > DATA_KEY_LIFE_S:
            if self._renewing is None and now_s >= self._retry_s:
                self._renewing = spawn(self._renew_quietly(), name="new data key")
            if not self._data_key or self._payloads >= DATA_KEY_PAYLOADS_MAX or age_s > DATA_KEY_LIFE_S_MAX:
                if self._action is CryptoFailureAction.SEND:
                    return payload  # the warning was when the key could not be read
                raise CryptoError(f"the data key is used up, and there is no new one: {self._why}") from self._why
        self._payloads += 1
        nonce = self._payloads.to_bytes(encryption.NONCE_BYTES, "big")
        del metadata.encryption_keys[:]
        metadata.encryption_keys.extend(self._keys)
        metadata.encryption_param = nonce
        return encryption.encrypt_payload(self._data_key, nonce, payload)


class KeyMissing(Exception):
    """What decrypts a payload was not asked for yet: :meth:`MessageDecryptor.fetch` does, then it is tried again."""

    def __init__(self, keys: Sequence[pb.EncryptionKeys]) -> None:
        super().__init__("a data key is not here yet")
        self.keys = keys


class MessageDecryptor:
    """Decrypts what a consumer gets."""

    __slots__ = ("_clock", "_data_keys", "_failures", "_source")

    def __init__(self, clock: Clock, source: KeySource) -> None:
        self._clock = clock
        self._source = source
        #: Wrapped data key -> data key, oldest first.
        self._data_keys: dict[bytes, bytes] = {}
        #: Wrapped data key -> until when it is not asked for again (monotonic seconds), and why.
        self._failures: dict[bytes, tuple[float, str]] = {}

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload as it was before encryption; raises KeyMissing, or CryptoError if there is no key for it."""
        from geminga.wire.pulsar import encryption

        why = ""
        for entry in metadata.encryption_keys:
            data_key = self._data_keys.get(entry.value)
            if data_key is not None:
                clear = attempt(encryption.decrypt_payload, data_key, metadata.encryption_param, payload)
                if not isinstance(clear, Raised):
                    return clear
                why = str(clear.error)
                del clear  # its traceback has this frame, and the payload: see runtime's value_of
        if not why:
            until_s, why = self._failures.get(metadata.encryption_keys[0].value, (0.0, ""))
            if not why or self._clock.monotonic() >= until_s:
                raise KeyMissing(metadata.encryption_keys)
        raise CryptoError(f"no key decrypts the message: {why}")

    async def fetch(self, keys: Sequence[pb.EncryptionKeys]) -> None:
        """Ask for the private keys until one gives the data key; that none does is raised by :meth:`decrypt`."""
        from geminga.wire.pulsar import encryption

        why = ""
        for entry in keys:
            info = await attempt_await(self._source.private_key(text_of(entry.key), texts_of(entry.metadata)))
            if isinstance(info, Raised):
                why = str(info.error)
                del info  # see runtime's value_of
                continue
            data_key = attempt(encryption.unwrap_data_key, info.key, entry.value)
            if isinstance(data_key, Raised):
                why = f"private key {entry.key!r}: {data_key.error}"
                del data_key
                continue
            _remember(self._data_keys, entry.value, data_key)
            return
        _remember(self._failures, keys[0].value, (self._clock.monotonic() + KEY_RETRY_S, why or "no key is named"))

    def forget_failures(self) -> None:
        """Everything comes again: keys that could not be read are asked for again."""
        self._failures.clear()


class FileKeyDecryptor(MessageDecryptor):
    """Decrypts with a private key from a file, read at once: for a loop that has nothing else to do (Spark's tasks)."""

    __slots__ = ("_path",)

    def __init__(self, clock: Clock, threads: Threads, private_key_path: str) -> None:
        super().__init__(clock, KeySource(threads, CryptoKeyReader("", private_key_path), 0.0))
        self._path = private_key_path

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload as it was before encryption; raises CryptoError."""
        from geminga.wire.pulsar import encryption

        try:
            return super().decrypt(metadata, payload)
        except KeyMissing:
            pass
        why = ""
        for entry in metadata.encryption_keys:
            try:
                data_key = encryption.unwrap_data_key(read_local_file(self._path), entry.value)
            except (OSError, encryption.EncryptionError) as error:
                why = str(error)
                continue
            _remember(self._data_keys, entry.value, data_key)
            return super().decrypt(metadata, payload)
        raise CryptoError(f"no key decrypts the message: {why}")


def _remember(cache: dict[bytes, Any], name: bytes, value: object) -> None:
    if len(cache) >= DATA_KEYS_CACHED_MAX:
        del cache[next(iter(cache))]
    cache[name] = value
