"""End-to-end encryption: what one end does the other undoes, and nobody else."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from geminga.client._crypto import (
    DATA_KEY_LIFE_S,
    CryptoKeyReader,
    EncryptionKeyInfo,
    MessageDecryptor,
    MessageEncryptor,
)
from geminga.client._errors import CryptoError
from geminga.client._options import CryptoFailureAction
from geminga.runtime.local_file import LOCAL_FILE_BYTES_MAX, read_local_file
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.encryption import (
    EncryptionError,
    decrypt_payload,
    encrypt_payload,
    unwrap_data_key,
    wrap_data_key,
)


class MemoryClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


def pem_pair(key) -> tuple[bytes, bytes]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public, private


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[bytes, bytes]]:
    """Of "a" and "b" RSA keys, of "c" and "d" elliptic curve keys."""
    return {
        **{name: pem_pair(rsa.generate_private_key(public_exponent=65537, key_size=2048)) for name in ("a", "b")},
        **{name: pem_pair(ec.generate_private_key(ec.SECP256R1())) for name in ("c", "d")},
    }


class MemoryKeyReader(CryptoKeyReader):
    def __init__(self, pairs) -> None:
        super().__init__()
        self.pairs = pairs
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get_public_key(self, key_name, metadata):
        return EncryptionKeyInfo(self.pairs[key_name][0], {"version": key_name + "1"})

    def get_private_key(self, key_name, metadata):
        self.asked.append((key_name, dict(metadata)))
        if key_name not in self.pairs:
            raise CryptoError(f"no key {key_name}")
        return EncryptionKeyInfo(self.pairs[key_name][1])


def metadata() -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)


def test_payload_comes_back_with_any_of_the_private_keys(pairs) -> None:
    encrypt = MessageEncryptor(MemoryClock(), MemoryKeyReader(pairs), ["b", "a", "c"], CryptoFailureAction.FAIL)
    head, again = metadata(), metadata()
    data, second = encrypt(head, b"payload"), encrypt(again, b"payload")
    assert data != second
    assert [key.key for key in head.encryption_keys] == ["a", "b", "c"]
    assert len(head.encryption_param) == 12
    for name in ("a", "b", "c"):
        reader = MemoryKeyReader({name: pairs[name]})
        decryptor = MessageDecryptor(reader)
        assert decryptor.decrypt(head, data) == b"payload"
        assert decryptor.decrypt(again, second) == b"payload"
        # The data key is remembered; the reader hears what the producer's reader said beside the key.
        assert (name, {"version": name + "1"}) in reader.asked
        assert len([asked for asked in reader.asked if asked[0] == name]) == 1


@pytest.mark.parametrize(("mine", "other"), [("a", "b"), ("c", "d"), ("a", "c"), ("c", "a")])
def test_wrong_key_changed_bytes_and_changed_nonce_are_refused(pairs, mine, other) -> None:
    encrypt = MessageEncryptor(MemoryClock(), MemoryKeyReader(pairs), [mine], CryptoFailureAction.FAIL)
    head = metadata()
    data = encrypt(head, b"payload")
    swapped = MessageDecryptor(MemoryKeyReader({mine: (pairs[mine][0], pairs[other][1])}))
    with pytest.raises(CryptoError):
        swapped.decrypt(head, data)
    decryptor = MessageDecryptor(MemoryKeyReader(pairs))
    with pytest.raises(CryptoError):
        decryptor.decrypt(head, data[:-1] + bytes((data[-1] ^ 1,)))
    with pytest.raises(CryptoError):
        decryptor.decrypt(head, b"")
    head.encryption_param = b"\x01"
    with pytest.raises(CryptoError):
        decryptor.decrypt(head, data)


def test_data_key_is_renewed_in_time(pairs) -> None:
    clock = MemoryClock()
    encrypt = MessageEncryptor(clock, MemoryKeyReader(pairs), ["a"], CryptoFailureAction.FAIL)
    first, second, third = metadata(), metadata(), metadata()
    encrypt(first, b"")
    encrypt(second, b"")
    clock.now_s = DATA_KEY_LIFE_S + 1
    encrypt(third, b"")
    values = [head.encryption_keys[0].value for head in (first, second, third)]
    assert values[0] == values[1] != values[2]


def test_missing_public_key_fails_or_sends_in_the_clear(tmp_path) -> None:
    reader = CryptoKeyReader(str(tmp_path / "missing.pem"))
    with pytest.raises(CryptoError):
        MessageEncryptor(MemoryClock(), reader, ["a"], CryptoFailureAction.FAIL)(metadata(), b"x")
    head = metadata()
    assert MessageEncryptor(MemoryClock(), reader, ["a"], CryptoFailureAction.SEND)(head, b"x") == b"x"
    assert not head.encryption_keys


def test_keys_of_other_kinds_are_refused() -> None:
    public, private = pem_pair(ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(EncryptionError, match="neither"):
        wrap_data_key(public, bytes(32))
    with pytest.raises(EncryptionError, match="neither"):
        unwrap_data_key(private, bytes(117))
    with pytest.raises(EncryptionError):
        wrap_data_key(b"nonsense", bytes(32))


def test_parameters_before_a_key_of_openssl_are_passed_over(pairs) -> None:
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    public, private = pairs["c"]
    assert unwrap_data_key(parameters + private, wrap_data_key(parameters + public, bytes(32))) == bytes(32)


def test_payload_is_followed_by_its_tag() -> None:
    encrypted = encrypt_payload(bytes(32), bytes(12), b"twelve bytes")
    assert len(encrypted) == 12 + 16
    assert decrypt_payload(bytes(32), bytes(12), encrypted) == b"twelve bytes"


def test_local_file_has_a_limit(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(LOCAL_FILE_BYTES_MAX))
    assert len(read_local_file(str(path))) == LOCAL_FILE_BYTES_MAX
    path.write_bytes(bytes(LOCAL_FILE_BYTES_MAX + 1))
    with pytest.raises(OSError):
        read_local_file(str(path))
