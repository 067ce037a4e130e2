"""Which clusters of one machine copy to each other, and what is written down of them."""

from __future__ import annotations

import json

import pytest

from geminga.app.local.core.local_mesh import (
    Mesh,
    asked_of,
    check_again,
    check_settings,
    decode_mesh,
    encode_mesh,
    mesh_of,
)
from geminga.model.errors import ConfigurationError, DataDirectoryError

MESH = Mesh(("east-1", "east-2"), is_registered=True, created_by="geminga 0.1.0")


def test_what_is_written_is_read_again() -> None:
    assert decode_mesh(encode_mesh(MESH), "here") == MESH


def test_clusters_have_numbers_and_each_the_ports_ten_higher() -> None:
    assert mesh_of(3, None, "").names == ("local-1", "local-2", "local-3")
    asked = {"bookies": 2, "broker_port": None, "web_port": 0, "zookeeper_port": 2181}
    first, third = (asked_of(index, f"east-{index}", asked, is_new=True) for index in (0, 2))
    assert first == {"bookies": 2, "cluster": "east-0", "broker_port": 6650, "web_port": 0, "zookeeper_port": 2181}
    assert third == {"bookies": 2, "cluster": "east-2", "broker_port": 6670, "web_port": 0, "zookeeper_port": 2201}
    # Of one that is there nothing is asked anew.
    assert asked_of(2, "east-2", {"broker_port": None}, is_new=False)["broker_port"] is None


@pytest.mark.parametrize("number", [-1, 0, 1, 9])
def test_a_number_of_clusters_that_makes_no_mesh_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--clusters {number}: expected a whole number from 2 to 8"):
        mesh_of(number, None, "")


@pytest.mark.parametrize("name", ["", "../east", "a/b", ".east", "-east", "ost\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="each cluster's folder is called so"):
        mesh_of(2, name, "")


def test_what_a_mesh_is_stays() -> None:
    check_again(MESH, None, None, "here")
    check_again(MESH, 2, "east", "here")
    with pytest.raises(ConfigurationError, match=r"--clusters 3: here has 2 \(east-1, east-2\), and keeps them"):
        check_again(MESH, 3, None, "here")
    with pytest.raises(ConfigurationError, match="--cluster west: these clusters are called east-1, east-2"):
        check_again(MESH, None, "west", "here")


def test_brokers_that_ask_who_registers_are_refused() -> None:
    check_settings({"authenticationEnabled": "false"})
    with pytest.raises(ConfigurationError, match="--set authenticationEnabled=true: with --clusters"):
        check_settings({"authenticationEnabled": " True"})


@pytest.mark.parametrize(
    "change",
    [
        {"format": "1"},
        {"format": True},
        {"clusters": "east-1"},
        {"clusters": ["east-1"]},
        {"clusters": ["east-1", "east-1"]},
        {"clusters": ["east-1", "../east"]},
        {"clusters": ["east-1", 2]},
        {"isRegistered": 1},
        {"createdBy": None},
    ],
)
def test_a_damaged_document_is_told(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(encode_mesh(MESH)), **change})
    with pytest.raises(DataDirectoryError, match="here is damaged"):
        decode_mesh(text, "here")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "7"])
def test_another_document_is_told(text: str) -> None:
    with pytest.raises(DataDirectoryError, match="here is damaged"):
        decode_mesh(text, "here")


def test_a_newer_format_is_told() -> None:
    text = json.dumps({**json.loads(encode_mesh(MESH)), "format": 2})
    with pytest.raises(DataDirectoryError, match="format 2, and this program knows formats up to 1: use a newer"):
        decode_mesh(text, "here")
