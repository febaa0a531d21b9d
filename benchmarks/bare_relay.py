"""A relay that only copies bytes between two sockets: the lower bound for a gateway."""

import asyncio
import sys
from typing import cast

import uvicorn


class _Half(asyncio.Protocol):
    """One of the two connections; it sends what it receives to the other."""

    def __init__(self, port: int | None = None) -> None:
        self._port = port
        self._early: list[bytes] = []
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._port is not None:
            self._opening = asyncio.ensure_future(self._open(self._port))

    async def _open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self.other, far = await loop.create_connection(_Half, "127.0.0.1", port)
        far.other = self._transport
        self.other.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


async def relay(port: int, to: int) -> None:
    """Relay connections from one port to another."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Half(to), "127.0.0.1", port, backlog=2_048)
    await server.serve_forever()


if __name__ == "__main__":
    # The same event loop as in our gateway.
    factory = uvicorn.Config("", loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(relay(int(sys.argv[1]), int(sys.argv[2])))
