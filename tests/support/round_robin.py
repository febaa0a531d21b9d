"""A proxy that sends every HTTP request to the next server that is ready, without sticky sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

# Headers that concern one connection.
CHECK_SECONDS: Final = 0.1
_CONNECTION_HEADERS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


class RoundRobinProxy:
    """Forwards each request to the next server. A server that is not ready or accepts no connection is skipped."""

    def __init__(self, targets: list[str]) -> None:
        self.targets = targets
        # How many requests each target has got.
        self.counts: dict[str, int] = {}
        self.url = ""
        self._number = 0
        self._is_ready = dict.fromkeys(targets, True)

    async def check_servers(self) -> None:
        """Ask every server again and again whether it is ready."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                for target in self.targets:
                    try:
                        async with session.get(f"{target}/ready") as answer:
                            self._is_ready[target] = answer.status == 200
                    except (aiohttp.ClientError, TimeoutError):
                        self._is_ready[target] = False
                await asyncio.sleep(CHECK_SECONDS)

    def _next_target(self) -> str:
        for _ in self.targets:
            self._number += 1
            target = self.targets[self._number % len(self.targets)]
            if self._is_ready[target]:
                break
        return target

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward a request to the next server."""
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _CONNECTION_HEADERS}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        for _ in range(len(self.targets)):
            target = self._next_target()
            # Without a pool, a connection is never reused after its server has died.
            connector = aiohttp.TCPConnector(force_close=True)
            try:
                async with (
                    aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
                    session.request(
                        request.method, f"{target}{request.path_qs}", data=body, headers=headers, allow_redirects=False
                    ) as answer,
                ):
                    self.counts[target] = self.counts.get(target, 0) + 1
                    return await self._copy(request, answer)
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientError, ConnectionError):
                # The server died before its response began.
                return web.json_response({"error": "bad gateway"}, status=502, headers={"retry-after": "1"})
        return web.json_response({"error": "no replica"}, status=503, headers={"retry-after": "1"})

    async def _copy(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _CONNECTION_HEADERS}
        headers["x-served-by"] = f"{answer.url.scheme}://{answer.url.authority}"
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            # The response has begun, so the connection is closed in the middle of it.
            if request.transport is not None:
                request.transport.close()
            return response
        await response.write_eof()
        return response


@asynccontextmanager
async def round_robin(targets: list[str]) -> AsyncIterator[RoundRobinProxy]:
    """Run a proxy on a free port."""
    proxy = RoundRobinProxy(targets)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.url = site.name if not site.name.endswith(":0") else f"http://127.0.0.1:{runner.addresses[0][1]}"
    checks = asyncio.create_task(proxy.check_servers())
    try:
        yield proxy
    finally:
        checks.cancel()
        await runner.cleanup()
