"""Ports that are kept for whoever is to listen there."""

import socket

import pytest

from moldau.testing.ports import LOOPBACK, ReservedPort


def test_a_server_may_listen_there_and_again_after_it_has_ended() -> None:
    port = ReservedPort()
    for _ in range(3):
        assert not port.is_served()
        with socket.create_server((LOOPBACK, port.number)) as server:
            with socket.create_connection((LOOPBACK, port.number)) as client:
                connection, _ = server.accept()
                connection.close()
                assert client.recv(1) == b""
            assert port.is_served()
    port.close()


def test_nobody_who_asks_for_any_port_is_given_it() -> None:
    port = ReservedPort()
    others = [socket.socket() for _ in range(500)]
    for other in others:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, 0))
    assert port.number not in [other.getsockname()[1] for other in others]
    for other in others:
        other.close()
    port.close()


def test_whoever_does_not_share_is_told_that_it_is_taken() -> None:
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((LOOPBACK, port.number))
    port.close()
