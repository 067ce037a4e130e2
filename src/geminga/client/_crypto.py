"""Keys for end-to-end encryption, and what encrypts and decrypts with them.

The ciphers load with the first key: most programs never need them, and they would take a fifth of the import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from geminga.client._errors import CryptoError
from geminga.client._options import CryptoFailureAction
from geminga.runtime import Clock, get_logger
from geminga.runtime.local_file import read_local_file
from geminga.wire._generated import pulsar_api_pb2 as pb

_log = get_logger(__name__)

#: A producer takes a new data key after so long, seconds, or so many payloads (GCM's bound for one key is 2^32).
DATA_KEY_LIFE_S: Final = 4 * 3600.0
DATA_KEY_PAYLOADS_MAX: Final = 1 << 31
#: Data keys that a consumer remembers; unwrapping one costs about a millisecond.
DATA_KEYS_CACHED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class EncryptionKeyInfo:
    """A key as a reader gives it: PEM, and what travels beside the wrapped data key."""

    key: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)


class CryptoKeyReader:
    """Reads the key pair from two PEM files, whatever the key's name; override the methods for other sources."""

    def __init__(self, public_key_path: str = "", private_key_path: str = "") -> None:
        """A producer needs the public key only, a consumer the private one only."""
        self.public_key_path = public_key_path
        self.private_key_path = private_key_path

    def get_public_key(self, key_name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """The public key called ``key_name``; raises OSError or CryptoError."""
        return EncryptionKeyInfo(read_local_file(self.public_key_path))

    def get_private_key(self, key_name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """The private key called ``key_name``; ``metadata`` is what the producer's reader gave beside it."""
        return EncryptionKeyInfo(read_local_file(self.private_key_path))


class MessageEncryptor:
    """Encrypts the payloads of one producer."""

    __slots__ = ("_action", "_clock", "_data_key", "_key_names", "_keys", "_made_s", "_payloads", "_reader")

    def __init__(
        self, clock: Clock, reader: CryptoKeyReader, key_names: Sequence[str], action: CryptoFailureAction
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._key_names = sorted(set(key_names))
        self._action = action
        self._data_key = b""
        #: The data key for each named key.
        self._keys: list[pb.EncryptionKeys] = []
        self._made_s = 0.0
        #: Payloads encrypted with the present data key: the nonce counts them.
        self._payloads = 0

    def renew(self) -> None:
        """Take a new data key; raises CryptoError if a public key can not be read."""
        from geminga.wire.pulsar import encryption

        data_key = encryption.new_data_key()
        keys = []
        for name in self._key_names:
            try:
                info = self._reader.get_public_key(name, {})
                wrapped = encryption.wrap_data_key(info.key, data_key)
            except (OSError, encryption.EncryptionError) as error:
                raise CryptoError(f"public key {name!r}: {error}") from error
            entry = pb.EncryptionKeys(key=name, value=wrapped)
            for key, value in info.metadata.items():
                entry.metadata.add(key=key, value=value)
            keys.append(entry)
        self._data_key, self._keys, self._payloads = data_key, keys, 0
        self._made_s = self._clock.monotonic()

    def __call__(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload encrypted, ``metadata`` saying how; raises CryptoError, unless failures are sent in the clear."""
        from geminga.wire.pulsar import encryption

        try:
            age_s = self._clock.monotonic() - self._made_s
            if not self._data_key or self._payloads >= DATA_KEY_PAYLOADS_MAX or age_s > DATA_KEY_LIFE_S:
                self.renew()
        except CryptoError as error:
            if self._action is CryptoFailureAction.SEND:
                _log.warning("sent without encryption: %s", error)
                return payload
            raise
        self._payloads += 1
        nonce = self._payloads.to_bytes(encryption.NONCE_BYTES, "big")
        del metadata.encryption_keys[:]
        metadata.encryption_keys.extend(self._keys)
        metadata.encryption_param = nonce
        return encryption.encrypt_payload(self._data_key, nonce, payload)


class MessageDecryptor:
    """Decrypts what a consumer gets."""

    __slots__ = ("_data_keys", "_reader")

    def __init__(self, reader: CryptoKeyReader) -> None:
        self._reader = reader
        #: Wrapped data key -> data key, oldest first.
        self._data_keys: dict[bytes, bytes] = {}

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload as it was before encryption; raises CryptoError."""
        from geminga.wire.pulsar import encryption

        last: Exception | None = None
        for entry in metadata.encryption_keys:
            try:
                data_key = self._data_key(entry)
                return encryption.decrypt_payload(data_key, metadata.encryption_param, payload)
            except (OSError, encryption.EncryptionError, CryptoError) as error:
                last = error
        raise CryptoError(f"no key decrypts the message: {last}") from last

    def _data_key(self, entry: pb.EncryptionKeys) -> bytes:
        data_key = self._data_keys.get(entry.value)
        if data_key is None:
            from geminga.wire.pulsar import encryption

            info = self._reader.get_private_key(entry.key, {pair.key: pair.value for pair in entry.metadata})
            data_key = encryption.unwrap_data_key(info.key, entry.value)
            if len(self._data_keys) >= DATA_KEYS_CACHED_MAX:
                del self._data_keys[next(iter(self._data_keys))]
            self._data_keys[entry.value] = data_key
        return data_key
