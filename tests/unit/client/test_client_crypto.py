"""End-to-end encryption: what one end does the other undoes, and nobody else; key readers of any kind."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import geminga.client as gc
from geminga.client._api.crypto import (
    DATA_KEY_LIFE_S,
    DATA_KEY_LIFE_S_MAX,
    KEY_RETRY_S,
    CryptoKeyReader,
    EncryptionKeyInfo,
    FileKeyDecryptor,
    KeyMissing,
    KeySource,
    MessageDecryptor,
    MessageEncryptor,
)
from geminga.client._api.errors import CryptoError
from geminga.runtime import next_turn
from geminga.runtime.local_file import LOCAL_FILE_BYTES_MAX, read_local_file
from geminga.sim.threads import SimThreads
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.encryption import (
    EncryptionError,
    decrypt_payload,
    encrypt_payload,
    unwrap_data_key,
    wrap_data_key,
)
from support.house.signing import pem_pair, rsa_key


class MemoryClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[bytes, bytes]]:
    """Of "a" and "b" RSA keys, of "c" and "d" elliptic curve keys."""
    return {
        **{name: pem_pair(rsa_key()) for name in ("a", "b")},
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


FAIL, SEND = gc.CryptoFailureAction.FAIL, gc.CryptoFailureAction.SEND


def source_of(reader: CryptoKeyReader, limit_s: float = 5.0) -> KeySource:
    return KeySource(SimThreads(inline=True), reader, limit_s)


async def encryptor(reader, names, action=FAIL, clock=None) -> MessageEncryptor:
    made = MessageEncryptor(clock or MemoryClock(), source_of(reader), names, action)
    await made.begin()
    return made


async def decrypted(decryptor: MessageDecryptor, head: pb.MessageMetadata, data: bytes) -> bytes:
    """As a consumer does it: once more after its keys were asked for."""
    try:
        return decryptor.decrypt(head, data)
    except KeyMissing as missing:
        await decryptor.fetch(missing.keys)
        return decryptor.decrypt(head, data)


def test_payload_comes_back_with_any_of_the_private_keys(pairs) -> None:
    async def story() -> None:
        encrypt = await encryptor(MemoryKeyReader(pairs), ["b", "a", "c"])
        head, again = metadata(), metadata()
        data, second = encrypt(head, b"payload"), encrypt(again, b"payload")
        assert data != second
        assert [key.key for key in head.encryption_keys] == ["a", "b", "c"]
        assert len(head.encryption_param) == 12
        for name in ("a", "b", "c"):
            reader = MemoryKeyReader({name: pairs[name]})
            decryptor = MessageDecryptor(MemoryClock(), source_of(reader))
            assert await decrypted(decryptor, head, data) == b"payload"
            # The data key is remembered; the reader hears what the producer's reader said beside the key.
            assert decryptor.decrypt(again, second) == b"payload"
            assert (name, {"version": name + "1"}) in reader.asked
            assert len([asked for asked in reader.asked if asked[0] == name]) == 1

    asyncio.run(story())


@pytest.mark.parametrize(("mine", "other"), [("a", "b"), ("c", "d"), ("a", "c"), ("c", "a")])
def test_wrong_key_changed_bytes_and_changed_nonce_are_refused(pairs, mine, other) -> None:
    async def story() -> None:
        encrypt = await encryptor(MemoryKeyReader(pairs), [mine])
        head = metadata()
        data = encrypt(head, b"payload")
        swapped = MessageDecryptor(MemoryClock(), source_of(MemoryKeyReader({mine: (pairs[mine][0], pairs[other][1])})))
        with pytest.raises(CryptoError):
            await decrypted(swapped, head, data)
        decryptor = MessageDecryptor(MemoryClock(), source_of(MemoryKeyReader(pairs)))
        with pytest.raises(CryptoError):
            await decrypted(decryptor, head, data[:-1] + bytes((data[-1] ^ 1,)))
        with pytest.raises(CryptoError):
            await decrypted(decryptor, head, b"")
        head.encryption_param = b"\x01"
        with pytest.raises(CryptoError):
            await decrypted(decryptor, head, data)

    asyncio.run(story())


class Failing(MemoryKeyReader):
    """Fails with ``error`` as long as there is one."""

    error: BaseException | None = None

    async def get_public_key(self, key_name, metadata):
        if self.error is not None:
            raise self.error
        return super().get_public_key(key_name, metadata)

    async def get_private_key(self, key_name, metadata):
        self.asked.append((key_name, {}))
        if self.error is not None:
            raise self.error
        return EncryptionKeyInfo(self.pairs[key_name][1])


async def turns() -> None:
    for _ in range(10):
        await next_turn()


def test_data_key_is_renewed_in_the_background_and_used_until_its_end(pairs) -> None:
    async def story() -> None:
        clock = MemoryClock()
        reader = Failing(pairs)
        encrypt = await encryptor(reader, ["a"], clock=clock)
        values = []

        def send() -> None:
            head = metadata()
            encrypt(head, b"")
            values.append(head.encryption_keys[0].value)

        send()
        send()
        clock.now_s = DATA_KEY_LIFE_S + 1
        reader.error = KeyError("gone")
        send()  # asks for a new one, with the old one still
        await turns()
        clock.now_s += KEY_RETRY_S
        send()
        await turns()
        assert len(set(values)) == 1
        clock.now_s = DATA_KEY_LIFE_S_MAX + 1
        with pytest.raises(CryptoError, match="KeyError: 'gone'"):
            send()
        await turns()
        reader.error = None
        clock.now_s += KEY_RETRY_S
        with pytest.raises(CryptoError):
            send()
        await turns()
        send()
        assert values[-1] != values[0]

    asyncio.run(story())


def test_missing_public_key_fails_or_sends_in_the_clear(tmp_path) -> None:
    async def story() -> None:
        reader = CryptoKeyReader(str(tmp_path / "missing.pem"))
        with pytest.raises(CryptoError, match=r"missing\.pem"):
            await encryptor(reader, ["a"])
        head = metadata()
        encrypt = await encryptor(reader, ["a"], SEND)
        assert encrypt(head, b"x") == b"x"
        assert not head.encryption_keys

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (asyncio.CancelledError(), "cancelled"),
        (None, "NoneType"),
        ("text", "str"),
        (EncryptionKeyInfo("text"), "expected EncryptionKeyInfo with bytes"),
        (EncryptionKeyInfo(b"key", {"a": 1}), "metadata"),
        (EncryptionKeyInfo(b"key", None), "metadata"),
        (EncryptionKeyInfo(b"nonsense"), "not a public key"),
    ],
)
@pytest.mark.parametrize("is_coroutine", [True, False])
def test_whatever_a_key_reader_does_is_one_kind_of_error(given, text, is_coroutine) -> None:
    class Reader(CryptoKeyReader):
        pass

    def get_public_key(self, key_name, metadata):
        if isinstance(given, BaseException):
            raise given
        return given

    async def get_public_key_later(self, key_name, metadata):
        return get_public_key(self, key_name, metadata)

    Reader.get_public_key = get_public_key_later if is_coroutine else get_public_key
    with pytest.raises(CryptoError, match=text):
        asyncio.run(encryptor(Reader(), ["a"]))


def test_key_reader_that_never_answers_is_given_up() -> None:
    class Silent(CryptoKeyReader):
        async def get_public_key(self, key_name, metadata):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(CryptoError, match=r"nothing within 0\.01 s"):
        asyncio.run(MessageEncryptor(MemoryClock(), source_of(Silent(), 0.01), ["a"], FAIL).begin())


def test_private_key_that_can_not_be_had_is_asked_for_again_later(pairs) -> None:
    async def story() -> None:
        clock = MemoryClock()
        encrypt = await encryptor(MemoryKeyReader(pairs), ["a"])
        head = metadata()
        data = encrypt(head, b"payload")
        reader = Failing(pairs)
        reader.error = KeyError("gone")
        decryptor = MessageDecryptor(clock, source_of(reader))
        for _ in range(2):
            with pytest.raises(CryptoError, match="gone"):
                await decrypted(decryptor, head, data)
        assert len(reader.asked) == 1
        reader.error = None
        clock.now_s += KEY_RETRY_S
        assert await decrypted(decryptor, head, data) == b"payload"
        other = metadata()
        reader.error = KeyError("gone")
        encrypt = await encryptor(MemoryKeyReader(pairs), ["a"])
        data = encrypt(other, b"payload")
        with pytest.raises(CryptoError):
            await decrypted(decryptor, other, data)
        reader.error = None
        decryptor.forget_failures()
        assert await decrypted(decryptor, other, data) == b"payload"

    asyncio.run(story())


def test_key_from_a_file_decrypts_without_waiting(pairs, tmp_path) -> None:
    path = tmp_path / "private.pem"
    path.write_bytes(pairs["a"][1])
    head = metadata()
    data = asyncio.run(encryptor(MemoryKeyReader(pairs), ["a", "b"]))(head, b"payload")
    assert FileKeyDecryptor(MemoryClock(), SimThreads(), str(path)).decrypt(head, data) == b"payload"
    with pytest.raises(CryptoError, match="missing"):
        FileKeyDecryptor(MemoryClock(), SimThreads(), str(tmp_path / "missing.pem")).decrypt(head, data)


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
