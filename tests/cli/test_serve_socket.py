"""The socket that `toolcrib serve` listens on."""

from __future__ import annotations

import socket
import sys

import pytest

from toolcrib.cli.serve import UNTAKEN_SECONDS, _bound
from toolcrib.config.settings import Http


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a socket say so")
def test_connections_are_let_go_by_the_kernel_if_nothing_of_them_is_taken() -> None:
    with _bound(Http(port=0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                said = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert said == UNTAKEN_SECONDS * 1_000
