"""ECIES: a ciphertext that Bouncy Castle made, and what must not decrypt."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from geminga.wire.pulsar.ecies import MAC_KEY_BYTES, TAG_BYTES, EciesError, decrypt, encrypt

#: Made by ``Cipher.getInstance("ECIES", "BC")`` of Bouncy Castle 1.84 for the key of this scalar on P-256.
SCALAR = 0x7B61600FC62B065C56D546806A3CBB57FF20B40194D195B267011C8634CFBCE
DATA = bytes.fromhex("9a4f00592d363668eb786be7e91eb9168e3bee5562f5f4ab39de94041cf2f47f")
WRAPPED = bytes.fromhex(
    "04b6b4be532d14e00c94449607be8a6b8e48e146ec3ea5a6bd57190b0243ae0b0b13e7df5b204642d545f5d0156d61962f6003249ccdc490ea"
    "0906b0b4c622bc4500b3380dd397b9617d36e24fefd019f82c05a0b79b49236c0ffb62a975d74193fe7961163a7c1b278a2af90b51604d2ec2"
    "cf50cd"
)


def test_ciphertext_of_bouncy_castle_is_decrypted() -> None:
    assert decrypt(ec.derive_private_key(SCALAR, ec.SECP256R1()), WRAPPED) == DATA


@pytest.mark.parametrize(
    "curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1()], ids=lambda c: c.name
)
@pytest.mark.parametrize("size", [0, 1, 32, 100])
def test_data_comes_back_on_every_curve(curve, size) -> None:
    key = ec.generate_private_key(curve)
    wrapped = encrypt(key.public_key(), b"d" * size)
    assert len(wrapped) == 1 + 2 * ((curve.key_size + 7) // 8) + size + TAG_BYTES
    assert decrypt(key, wrapped) == b"d" * size
    assert encrypt(key.public_key(), b"d" * size) != wrapped
    assert MAC_KEY_BYTES == 16


def test_changed_bytes_and_other_keys_are_refused() -> None:
    key = ec.derive_private_key(SCALAR, ec.SECP256R1())
    for place in (0, 1, 40, 70, len(WRAPPED) - 1):
        changed = bytearray(WRAPPED)
        changed[place] ^= 1
        with pytest.raises(EciesError):
            decrypt(key, bytes(changed))
    with pytest.raises(EciesError, match="too few"):
        decrypt(key, WRAPPED[:84])
    with pytest.raises(EciesError, match="tag"):
        decrypt(ec.generate_private_key(ec.SECP256R1()), WRAPPED)
    with pytest.raises(EciesError):
        decrypt(ec.generate_private_key(ec.SECP384R1()), WRAPPED)
