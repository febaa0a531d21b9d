"""Ask the user to approve calls, by elicitation in both protocol revisions."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError

from toolcrib.config.settings import AskBefore
from toolcrib.core import prompts
from toolcrib.errors import InvalidStore
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.meta_tools import text_result
from toolcrib.gateway.mcp.upstream.in_flight import send_with_timeout
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.storage.shared_values import SharedValue

ANSWER_SECONDS: Final = 600.0
MAX_SHOWN_ARGUMENT_CHARS: Final = 1_000
_INPUT_KEY: Final = "approval"
# Marks the digest of an approved call, as opposed to one that is asked for.
_APPROVED: Final = "approved "
_log = logging.getLogger(__name__)
_ASKED_RISKS: Final[Mapping[AskBefore, tuple[str, ...]]] = {
    "never": (),
    "destructive": ("destructive",),
    "write": ("write", "destructive"),
}


class CallApprovals:
    """Decides which calls need an approval, and asks for it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def needs_approval(self, view: AccessView, entry: DirectoryEntry) -> bool:
        """Return whether a person has to approve the calls of a tool."""
        ask = view.profile.ask or self._hub.config.safety.ask
        return entry.risk in _ASKED_RISKS[ask]

    async def request_approval(
        self, client: ConnectedClient, params: Mapping[str, Any], message: str, subject: object
    ) -> dict[str, Any] | None:
        """Ask the user; return None if the user approves, otherwise the result of the call.

        A stateless client gets an `input_required` result, and repeats the request with the answer.
        `subject` is what is approved, as JSON: an answer for something else does not count.
        """
        if "elicitation" not in client.capabilities:
            return text_result(prompts.APPROVAL_IMPOSSIBLE, is_error=True)
        request = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
        if not client.is_stateless:
            try:
                answer = await send_with_timeout(client, "elicitation/create", request, ANSWER_SECONDS)
            except MCPError as error:
                return text_result(prompts.APPROVAL_FAILED.format(reason=error.error.message), is_error=True)
            return _check_answer(answer)
        digest = _digest(client.owner, subject)
        try:
            stored = await self._take(str(params.get("requestState", "")))
            if stored == _APPROVED + digest:
                return None
            token = f"approval-{secrets.token_urlsafe(18)}"
            if stored != digest:
                await self._put(token, digest)
        except InvalidStore as error:
            return text_result(prompts.APPROVAL_FAILED.format(reason=error), is_error=True)
        if stored == digest:
            responses = params.get("inputResponses")
            return _check_answer(responses.get(_INPUT_KEY) if isinstance(responses, Mapping) else None)
        asked = {_INPUT_KEY: {"method": "elicitation/create", "params": request}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": token}

    async def remember(self, client: ConnectedClient, result: Mapping[str, Any], subject: object) -> None:
        """Keep an approval for the next request, if the server also asks for input."""
        if client.is_stateless and result.get("resultType") == "input_required" and "requestState" in result:
            try:
                await self._put(str(result["requestState"]), _APPROVED + _digest(client.owner, subject))
            except InvalidStore as error:
                _log.warning("an approval is asked for again: %s", error)

    async def _put(self, token: str, value: str) -> None:
        """Store what is asked for or was approved. The answer may reach another replica."""
        now = time.time()
        stored = SharedValue("approval", hashlib.sha256(token.encode()).hexdigest(), value, now + ANSWER_SECONDS)
        await anyio.to_thread.run_sync(partial(self._hub.store.put_values, [stored], now=now))

    async def _take(self, token: str) -> str | None:
        """Return what is stored for a token, once."""
        if not token:
            return None
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        return await anyio.to_thread.run_sync(self._hub.store.take_value, "approval", key, time.time())


def without_answer(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call without the answer to our own request."""
    responses = params.get("inputResponses")
    if not isinstance(responses, Mapping) or _INPUT_KEY not in responses:
        return dict(params)
    return {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}


def describe_calls(calls: Sequence[tuple[DirectoryEntry, Mapping[str, Any]]]) -> str:
    """Return the calls for the user: names, and the arguments that reach the server."""
    lines = []
    for entry, arguments in calls:
        removed = entry.override.removed_parameters if entry.override else ()
        sent = {name: value for name, value in arguments.items() if name not in removed}
        text = json.dumps(sent, ensure_ascii=False, default=str)
        shown = text if len(text) <= MAX_SHOWN_ARGUMENT_CHARS else f"{text[:MAX_SHOWN_ARGUMENT_CHARS]}…"
        lines.append(f"{entry.name} ({entry.risk}) {shown}")
    return "\n".join(lines)


def _check_answer(answer: object) -> dict[str, Any] | None:
    if isinstance(answer, Mapping) and answer.get("action") == "accept":
        return None
    return text_result(prompts.APPROVAL_DECLINED, is_error=True)


def _digest(owner: str, subject: object) -> str:
    text = json.dumps([owner, subject], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
