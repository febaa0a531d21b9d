"""A TCP proxy that a test can cut: before or after the server has received certain bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

# Receives what a client sends; returns whether to forward it, and whether to cut the connection after that.
OnData = Callable[[bytes], tuple[bool, bool]]


class TcpProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.on_data: OnData = lambda data: (True, False)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target_port)) as server:
            Thread(target=_copy, args=(server, client), daemon=True).start()
            while data := client.recv(65_536):
                forward, cut = self.on_data(data)
                if cut:
                    # The client gets no response.
                    client.shutdown(socket.SHUT_RDWR)
                if forward:
                    server.sendall(data)
                if cut:
                    # Wait until the server has read everything and closed the connection.
                    server.shutdown(socket.SHUT_WR)
                    while server.recv(65_536):
                        pass
                    return


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def run_proxy(target_port: int) -> Iterator[TcpProxy]:
    """Run a proxy to a port of this machine."""
    proxy = TcpProxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
