"""Ask the user to approve calls, by elicitation in both protocol revisions."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from toolcrib.config.settings import AskBefore
from toolcrib.core import prompts
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.meta_tools import text_result
from toolcrib.gateway.mcp.upstream.in_flight import send_with_timeout
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView

ANSWER_SECONDS: Final = 600.0
MAX_OPEN_APPROVALS: Final = 1_000
MAX_SHOWN_ARGUMENT_CHARS: Final = 1_000
_INPUT_KEY: Final = "approval"
_ASKED_RISKS: Final[Mapping[AskBefore, tuple[str, ...]]] = {
    "never": (),
    "destructive": ("destructive",),
    "write": ("write", "destructive"),
}


class CallApprovals:
    """Decides which calls need an approval, and asks for it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # Tokens of stateless clients: the digest of what is asked for or was approved, and the expiry.
        self._asked: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._approved: OrderedDict[str, tuple[str, float]] = OrderedDict()

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
        token = str(params.get("requestState"))
        if _take(self._approved, token, digest):
            return None
        if _take(self._asked, token, digest):
            responses = params.get("inputResponses")
            return _check_answer(responses.get(_INPUT_KEY) if isinstance(responses, Mapping) else None)
        token = f"approval-{secrets.token_urlsafe(18)}"
        _put(self._asked, token, digest)
        asked = {_INPUT_KEY: {"method": "elicitation/create", "params": request}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": token}

    def remember(self, client: ConnectedClient, result: Mapping[str, Any], subject: object) -> None:
        """Keep an approval for the next request, if the server asks for input of its own."""
        if client.is_stateless and result.get("resultType") == "input_required" and "requestState" in result:
            _put(self._approved, str(result["requestState"]), _digest(client.owner, subject))


def without_answer(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call without the answer to our own request."""
    responses = params.get("inputResponses")
    if not isinstance(responses, Mapping) or _INPUT_KEY not in responses:
        return dict(params)
    return {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}


def describe_calls(calls: Sequence[tuple[DirectoryEntry, Mapping[str, Any]]]) -> str:
    """Return the calls for the user: names and arguments."""
    lines = []
    for entry, arguments in calls:
        text = json.dumps(arguments, ensure_ascii=False, default=str)
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


def _put(table: OrderedDict[str, tuple[str, float]], token: str, digest: str) -> None:
    table[token] = (digest, time.monotonic() + ANSWER_SECONDS)
    while len(table) > MAX_OPEN_APPROVALS:
        table.popitem(last=False)


def _take(table: OrderedDict[str, tuple[str, float]], token: str, digest: str) -> bool:
    stored, expires = table.pop(token, ("", 0.0))
    return stored == digest and time.monotonic() < expires
