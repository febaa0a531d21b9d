"""Requests over HTTP that end in time, also where a server sends one byte now and then.

The time limit of a socket is for each read and starts anew with every byte. Here it is what is left
of the whole request's.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from functools import partial
from typing import Any


class PlainHandler(urllib.request.HTTPHandler):
    """Opens `http` addresses."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """The reply; the request's time limit goes for all of it."""
        return self.do_open(_Connection, req)


class SecureHandler(urllib.request.HTTPSHandler):
    """Opens `https` addresses, with the certificates of the machine."""

    def __init__(self) -> None:
        self._trusted = ssl.create_default_context()
        super().__init__(context=self._trusted)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """The reply; the request's time limit goes for all of it."""
        return self.do_open(_SecureConnection, req, context=self._trusted)


class _Connection(http.client.HTTPConnection):
    """A connection for one request, with the moment by which that has to be over."""

    def connect(self) -> None:
        """Connect, and leave what is left of the time to what follows."""
        assert self.timeout is not None
        self._deadline = time.monotonic() + self.timeout
        # A proxy is asked for its tunnel while connecting, and may be as slow.
        self.response_class = partial(_Response, self._deadline)  # type: ignore[assignment]
        super().connect()
        self.sock.settimeout(_left(self._deadline))

    def send(self, data: Any) -> None:
        """Send, within what is left of the time."""
        if self.sock is not None:
            self.sock.settimeout(_left(self._deadline))
        super().send(data)


# In this order the handshake comes after the connecting above, and has what is left.
class _SecureConnection(http.client.HTTPSConnection, _Connection):
    pass


class _Response(http.client.HTTPResponse):
    """A reply whose every byte comes in time."""

    def __init__(self, deadline: float, sock: socket.socket, *rest: Any, **named: Any) -> None:
        super().__init__(_Source(sock, deadline), *rest, **named)  # type: ignore[arg-type]


class _Source:
    """What a reply takes for its socket."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Bytes(self._sock, self._deadline))


class _Bytes(io.RawIOBase):
    """A socket's bytes; none is waited for beyond the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._bytes = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left
