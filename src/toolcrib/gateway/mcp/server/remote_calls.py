"""Calls that another replica has to run, because it runs the server or waits for the client's input.

The call, the server's requests to the client and the client's answers travel through the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from mcp.shared.exceptions import MCPError

from toolcrib.config.server_settings import Instances
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.gateway.replicas import ReplicaChannel

MAX_FORWARDED_CALLS: Final = 1_000
# The fields of a message about a call that describe its client.
_CLIENT_FIELDS: Final = ("replica", "call", "profile", "owner", "is_stateless", "capabilities", "key")


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """A client that is connected to another replica, for as long as that replica waits for its call."""

    replicas: ReplicaChannel
    replica: str
    call: str
    profile: str | None
    owner: str
    is_stateless: bool
    capabilities: Mapping[str, Any]
    key: str

    def get_instance_key(self, instances: Instances) -> object:
        """Return what identifies the client's instance of a server."""
        return self.key if instances == "session" else self.owner

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        body = {"call": self.call, "method": method, "params": params}
        return _read_answer(await self.replicas.request("client-request", body, self.replica))

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        body = {"call": self.call, "method": method, "params": params}
        await self.replicas.send("client-notification", body, self.replica)

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        body = {"call": self.call, "progress": [progress, total, message]}
        await self.replicas.send("client-notification", body, self.replica)


CallClient = ConnectedClient | RemoteClient
# Runs a call of the client of another replica; see `ServerRequestBridge.forward_request`.
RunCall = Callable[..., Awaitable[dict[str, Any]]]


class RemoteCalls:
    """Sends calls to other replicas, and runs theirs."""

    def __init__(self, replicas: ReplicaChannel, pool: UpstreamPool, run_call: RunCall) -> None:
        self._replicas = replicas
        self._pool = pool
        self._run_call = run_call
        # The clients of calls that another replica runs.
        self._clients: dict[str, ConnectedClient] = {}
        replicas.add_handler("call", self._receive_call)
        replicas.add_handler("list", self._receive_list)
        replicas.add_handler("client-request", self._receive_client_request)
        replicas.add_handler("client-notification", self._receive_client_notification)
        pool.list_remotely = self.list_entries

    def find_replica(self, server: UpstreamServer, params: Mapping[str, Any]) -> str:
        """Return the replica that has to run a call; empty for this one."""
        if server.lease_holder:
            return server.lease_holder
        replica, dash, _ = str(params.get("requestState", "")).partition("-")
        is_other = dash and len(replica) == len(self._replicas.id) and replica != self._replicas.id
        return replica if is_other and self._replicas.is_shared else ""

    async def forward(
        self, replica: str, server: str, call: tuple[str, Mapping[str, Any], bool], client: ConnectedClient
    ) -> dict[str, Any]:
        """Return the result of a call that another replica runs; `call` is method, parameters and repeatability."""
        if len(self._clients) >= MAX_FORWARDED_CALLS:
            raise ServerUnavailable("too many calls wait for other replicas; try again later")
        method, params, may_repeat = call
        number = uuid4().hex
        self._clients[number] = client
        body = {
            "call": number,
            "replica": self._replicas.id,
            "server": server,
            "method": method,
            "params": params,
            "may_repeat": may_repeat,
            "profile": client.profile,
            "owner": client.owner,
            "is_stateless": client.is_stateless,
            "capabilities": client.capabilities,
            "key": client.state.id if client.state.has_session else client.owner,
        }
        try:
            return _read_answer(await self._replicas.request("call", body, replica))
        finally:
            del self._clients[number]

    async def list_entries(self, replica: str, server: str, method: str, key: str) -> list[Any]:
        """Return the prompts, resources or skills of a server that another replica runs."""
        body = {"server": server, "method": method, "key": key}
        entries: list[Any] = _read_answer(await self._replicas.request("list", body, replica))["entries"]
        return entries

    async def _receive_call(self, body: Mapping[str, Any]) -> dict[str, Any]:
        server = self._pool.servers.get(str(body["server"]))
        if server is None or server.lease_holder:
            return {"unavailable": f"{body['server']} does not run on this replica; try again"}
        client = RemoteClient(self._replicas, **{name: body[name] for name in _CLIENT_FIELDS})
        run = self._run_call(server, body["method"], body["params"], client, may_repeat=body["may_repeat"])
        return await _answer(run)

    async def _receive_list(self, body: Mapping[str, Any]) -> dict[str, Any]:
        async def list_entries() -> dict[str, Any]:
            server = self._pool.servers[str(body["server"])]
            connection = await server.wait_connected()
            if not connection.supports(str(body["method"]).partition("/")[0]):
                return {"entries": []}
            timeout = server.config.connect_seconds
            return {"entries": await connection.request_list(body["method"], body["key"], timeout)}

        return await _answer(list_entries())

    async def _receive_client_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        client = self._clients.get(body["call"])
        if client is None:
            return {"unavailable": "the client has ended the call"}
        return await _answer(client.send_request(body["method"], body["params"]))

    async def _receive_client_notification(self, body: Mapping[str, Any]) -> None:
        client = self._clients.get(body["call"])
        if client is None:
            return
        if "progress" in body:
            progress, total, message = body["progress"]
            await client.report_progress(progress, total, message)
        else:
            await client.notify(body["method"], body["params"])


async def _answer(run: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"result": await run}
    except MCPError as error:
        return {"error": error.error.model_dump(by_alias=True, mode="json", exclude_none=True)}
    except ServerUnavailable as error:
        return {"unavailable": str(error)}


def _read_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result in an answer, or raise its error."""
    if "unavailable" in answer:
        raise ServerUnavailable(str(answer["unavailable"]))
    if "error" in answer:
        error = answer["error"]
        raise MCPError(error["code"], error["message"], error.get("data"))
    result: dict[str, Any] = answer["result"]
    return result
