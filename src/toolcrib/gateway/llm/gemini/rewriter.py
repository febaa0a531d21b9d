"""One Gemini request over all its rounds: what to send to the upstream, and what its replies mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.gemini import (
    answers_to_wire,
    calls_from_wire,
    name_fields,
    to_camel_case,
    tools_to_wire,
    turns_from_wire,
)
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ReplyMemory, ScopedMemory
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.search_loop import RequestRewriter
from toolcrib.gateway.llm.tools.tool_index import Entry, ToolIndex
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection
from toolcrib.session.turn import ToolTask

Content = dict[str, Any]

DECLARATIONS: Final = "functionDeclarations"
# A reply that ended for one of these reasons is complete.
_FULL_STOPS: Final = (None, "STOP")


def list_declarations(body: Mapping[str, Any]) -> list[Entry]:
    """Return the functions of a request."""
    tools = map(name_fields, dicts_or_empty(body.get("tools")))
    return [each for tool in tools for each in dicts_or_empty(tool.get(DECLARATIONS))]


def get_call(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function call of a part, or an empty object."""
    return dict_or_empty(part.get("functionCall"))


class GeminiRewriter(RequestRewriter):
    """One request and its rounds. The client does not see the searches."""

    treatment: Treatment = "transparent"

    def __init__(self, body: Content, index: ToolIndex, memory: ScopedMemory, max_rounds: int) -> None:
        super().__init__(body, index, max_rounds)
        contents = list(map(_name_parts, dicts_or_empty(body.get("contents"))))
        self._memory = ReplyMemory(memory.narrow("gemini"))
        self._context = _list_context(contents)
        contents = self._restore_hidden(contents)
        self._selection = ToolSelection(index)
        self._selection.replay_calls(turns_from_wire(contents))
        self._contents = [self._add_prefetched(self._wrap_calls(content)) for content in contents]
        self._hidden: list[Content] = []
        self._visible_parts: list[Content] = []

    def next_request(self) -> Content:
        may_search = self.index.is_dispatch or self.rounds < self._max_rounds
        own = tools_to_wire(self.index.own_tools) if may_search else []
        declarations = [*self.index.always_sent, *list_declarations({"tools": own}), *self._selection.wire_entries]
        others = [
            {name: value for name, value in tool.items() if to_camel_case(name) != DECLARATIONS}
            for tool in dicts_or_empty(self._body.get("tools"))
        ]
        tools = [*filter(None, others), *([{DECLARATIONS: declarations}] if declarations else [])]
        return {**self._body, "contents": [*self._contents, *self._hidden], "tools": tools}

    def is_intercepted(self, part: Mapping[str, Any]) -> bool:
        """Return whether the gateway handles the call of a part."""
        call = get_call(part)
        return bool(call) and self._selection.is_intercepted(str_or_empty(call.get("name")))

    def has_searches(self, reply: Content) -> bool:
        return any(map(self.is_intercepted, _get_parts(reply)))

    def handle_reply(self, reply: Content) -> Content | None:
        self.add_usage(reply.get("usageMetadata"))
        candidates = dicts_or_empty(reply.get("candidates"))
        if len(candidates) != 1:
            return reply
        candidate = candidates[0]
        visible = self.handle_parts(_get_parts(reply), candidate.get("finishReason"))
        if visible is None:
            return None
        content = {**dict_or_empty(candidate.get("content")), "parts": [*self._visible_parts, *visible]}
        usage = {} if self.usage is None else {"usageMetadata": self.usage}
        return {**reply, "candidates": [{**candidate, "content": content}], **usage}

    def handle_parts(self, parts: Sequence[Content], reason: object) -> list[Content] | None:
        """Run the searches of a reply, which may take long.

        Return the parts of this round for the client, or None if the upstream has to be asked again.
        """
        calls = [part for part in parts if self.is_intercepted(part)]
        others = [part for part in parts if not self.is_intercepted(part)]
        if not calls or reason not in _FULL_STOPS:
            return self._finish(parts, others)
        is_last = self.rounds >= self._max_rounds
        wire_calls = calls_from_wire({"parts": calls})
        replies, tasks = self.answer_calls(wire_calls)
        answered = {id(reply.call) for reply in replies}
        visible_calls = [
            self._render_call(part, tasks.get(id(call)))
            for part, call in zip(calls, wire_calls, strict=True)
            if id(call) not in answered
        ]
        client_calls = [part for part in others if get_call(part)]
        results = answers_to_wire(replies) if replies else []
        if visible_calls or client_calls or is_last:
            return self._finish(parts, [*others, *visible_calls], results)
        self._visible_parts += others
        self._hidden += [{"role": "model", "parts": list(parts)}, *results]
        return None

    def _render_call(self, part: Content, task: ToolTask | None) -> Content:
        """Return a call of `call_tool` as a call of the client's tool; another call is unchanged."""
        call = get_call(part)
        name = self.index.tools[task.tool.id].wire_name if task else ""
        if task is None or call.get("name") == name:
            return part
        return {**part, "functionCall": {**call, "name": name, "args": dict(task.arguments)}}

    def _finish(
        self, parts: Sequence[Content], visible: list[Content], results: Sequence[Content] = ()
    ) -> list[Content]:
        """Return the parts for the client, and remember what is hidden from it."""
        if self._hidden or results:
            hidden = [*self._hidden, {"role": "model", "parts": list(parts)}, *results]
            self._memory.remember(hidden, self._context, *_make_anchor([*self._visible_parts, *visible]))
        return visible

    def _restore_hidden(self, contents: Sequence[Content]) -> list[Content]:
        """Return the contents with those that were hidden from the client and are remembered.

        The results of searches and of client tools of one turn have to be in one content.
        """
        restored: list[Content] = []
        start = 0
        for number, content in enumerate(contents):
            if content.get("role") == "model":
                context, start = _list_context(contents[start:number]), number
                hidden = self._memory.recall(context, *_make_anchor(dicts_or_empty(content.get("parts"))))
                restored.extend([content] if hidden is None else hidden)
            elif restored and _has_results(restored[-1]) and _has_results(content):
                restored[-1] = {**content, "parts": [*restored[-1]["parts"], *dicts_or_empty(content.get("parts"))]}
            else:
                restored.append(content)
        return restored

    def _wrap_calls(self, content: Content) -> Content:
        """Return a content with calls of deferred tools as calls of `call_tool`, in dispatch style."""
        if not self.index.is_dispatch or not isinstance(content.get("parts"), list):
            return content
        return {**content, "parts": [self._wrap_part(part) for part in content["parts"]]}

    def _wrap_part(self, part: Any) -> Any:
        for field in ("functionCall", "functionResponse"):
            inner = dict_or_empty(dict_or_empty(part).get(field))
            wrapped = self.index.wrap_call(str_or_empty(inner.get("name")), inner.get("args", {}))
            if wrapped is not None:
                args = {"args": wrapped} if field == "functionCall" else {}
                return {**part, field: {**inner, "name": self.index.call_tool.name, **args}}
        return part

    def _add_prefetched(self, content: Content) -> Content:
        """Return a content of the user with the prefetched definitions."""
        parts = dicts_or_empty(content.get("parts"))
        is_question = content.get("role") != "model" and not _has_results(content)
        text = self._selection.prefetch(_join_texts(parts)) if is_question else ""
        return {**content, "parts": [*parts, {"text": text}]} if text else content


def _name_parts(content: Content) -> Content:
    """Return a content whose parts have names in camel case; the API accepts snake case too."""
    parts = content.get("parts")
    if not isinstance(parts, list):
        return content
    return {**content, "parts": [name_fields(part) if isinstance(part, dict) else part for part in parts]}


def _get_parts(reply: Content) -> Sequence[Content]:
    candidates = dicts_or_empty(reply.get("candidates"))
    content = dict_or_empty(candidates[0].get("content")) if len(candidates) == 1 else {}
    return dicts_or_empty(content.get("parts"))


def _has_results(content: Mapping[str, Any]) -> bool:
    return any("functionResponse" in part for part in dicts_or_empty(content.get("parts")))


def _join_texts(parts: Sequence[Content]) -> str:
    return "".join(str_or_empty(part.get("text")) for part in parts if part.get("thought") is not True)


def _make_anchor(parts: Sequence[Content]) -> tuple[object, ...]:
    """Return what identifies a reply of the model when the client sends it back. Some clients drop the ids of calls."""
    calls = [[call.get("name"), call.get("args") or {}] for call in map(get_call, parts) if call]
    return _join_texts(parts), calls


def _list_context(contents: Sequence[Content]) -> list[object]:
    """Return what identifies the client's contents after the last reply of the model."""
    context: list[object] = []
    for content in contents:
        if content.get("role") == "model":
            context = []
            continue
        for part in dicts_or_empty(content.get("parts")):
            response = dict_or_empty(part.get("functionResponse"))
            context.append([response.get("id"), response.get("name")] if response else str_or_empty(part.get("text")))
    return context
