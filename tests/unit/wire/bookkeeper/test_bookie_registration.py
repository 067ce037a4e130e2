"""Registrations of bookies: BookKeeper's bytes, and what of them tells an address."""

from __future__ import annotations

import pytest

from geminga.model.errors import CorruptionError
from geminga.wire._generated import bookkeeper_metadata_pb2 as pb
from geminga.wire.bookkeeper.bookie_registration import (
    decode_service_address,
    encode_local_service_info,
    encode_service_info,
)
from support.house.source_tree import ROOT

#: As documented: endpoints (6) with id (1), port (2), host (3), protocol (4).
BYTES = bytes.fromhex("32 21 0a06 626f6f6b6965 10ed18 1a08 31302e302e302e37 220a 626f6f6b69652d727063")


def test_bytes_are_those_of_the_page() -> None:
    assert encode_service_info("10.0.0.7", 3181) == BYTES
    assert decode_service_address(BYTES, "n") == ("10.0.0.7", 3181)
    page = (ROOT / "docs" / "formats" / "bookie-registration.md").read_text(encoding="utf-8")
    assert "32 21 0a06 626f6f6b6965 10ed18 1a08 31302e302e302e37 220a 626f6f6b69652d727063" in page


def test_what_others_add_is_passed_over() -> None:
    info = pb.BookieServiceInfoFormat()
    info.endpoints.add(id="httpserver", port=8080, host="h", protocol="http")
    info.endpoints.add(id="bookie", port=1, host="b", protocol="bookie-rpc", auth=["x"], extensions=["tls"])
    info.properties["color"] = "red"
    assert decode_service_address(info.SerializeToString(), "n") == ("b", 1)
    assert decode_service_address(b"", "n") is None


@pytest.mark.parametrize("cut", range(1, len(BYTES)))
def test_what_is_cut_short_is_damage(cut: int) -> None:
    with pytest.raises(CorruptionError, match="metadata node /x"):
        decode_service_address(BYTES[:cut], "metadata node /x")


@pytest.mark.parametrize(("host", "port", "protocol"), [("", 1, "bookie-rpc"), ("h", 0, "bookie-rpc"), ("h", 1, "x")])
def test_without_an_address_it_is_named(host: str, port: int, protocol: str) -> None:
    info = pb.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", port=port, host=host, protocol=protocol)
    with pytest.raises(CorruptionError, match="names no"):
        decode_service_address(info.SerializeToString(), "n")


def test_a_unix_socket_stands_for_host_and_port() -> None:
    assert decode_service_address(encode_local_service_info("/d/bookie.socket"), "n") == ("unix:/d/bookie.socket", 0)
    for host, port in (("unix:", 0), ("unix:relative", 0)):
        with pytest.raises(CorruptionError, match="names no address"):
            decode_service_address(encode_service_info(host, port), "n")
