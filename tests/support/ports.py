"""Ports for servers of tests and benchmarks."""

from __future__ import annotations

import socket


def find_free_ports(count: int) -> list[int]:
    """Return different ports that are free at the moment."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def find_free_port() -> int:
    """Return a port that is free at the moment."""
    (port,) = find_free_ports(1)
    return port


def is_listening(port: int) -> bool:
    """Return whether a server accepts connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
