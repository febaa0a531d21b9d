"""Run the LLM gateway on a real port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.routes import build_llm_routes


class RunningLlmGateway:
    """A gateway that runs in its own thread."""

    def __init__(self, gateway: LlmGateway) -> None:
        self.gateway = gateway
        self._config = uvicorn.Config(
            Starlette(routes=build_llm_routes(gateway)),
            host="127.0.0.1",
            port=0,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(self._config)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        if not self._ready.wait(10):
            raise TimeoutError("the gateway did not start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        await self.gateway.open()
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving
        await self.gateway.close()


@contextmanager
def running_llm_gateway(gateway: LlmGateway) -> Iterator[RunningLlmGateway]:
    """Run a gateway and yield it with its URL."""
    served = RunningLlmGateway(gateway)
    served.start()
    try:
        yield served
    finally:
        served.stop()


@contextmanager
def gateway_for_upstream(url: str, **settings: Any) -> Iterator[RunningLlmGateway]:
    """Run a gateway with one upstream of the Messages API, with these settings."""
    upstream = LlmUpstreamConfig("scripted", api="messages", url=url, **settings)
    with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,)))) as served:
        yield served
