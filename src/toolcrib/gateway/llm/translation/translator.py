"""What all translations share: reading fields, refusing them by name, and content parts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, parse_arguments, str_or_empty
from toolcrib.errors import RequestFailed

Body = dict[str, Any]

# Models whose servers are known to have `reasoning_effort`; others refuse it.
_EFFORT_MODELS: Final = re.compile(r"(?:.*/)?(?:o[1-9]\b|gpt-[5-9]|gpt-oss|gemini-(?:2\.5|[3-9]))")
# The largest budgets of the efforts.
_EFFORT_BUDGETS: Final = ((4_096, "low"), (16_384, "medium"))


def refuse(place: str, what: str = "") -> RequestFailed:
    """Return the error for a part of a request that Chat Completions cannot carry."""
    name = f"{place}: {what}" if what else f"`{place}`"
    return RequestFailed(
        f"{name} is not possible with this model, whose upstream has only Chat Completions; leave it out, or use "
        "another model",
        param=place,
    )


def check_fields(body: Mapping[str, Any], known: Collection[str], place: str = "") -> None:
    """Refuse a request with fields that cannot be translated. Fields without a value are allowed."""
    for name, value in body.items():
        if name not in known and value not in (None, False, [], {}):
            raise refuse(f"{place}{name}")


def translate_budget(budget: object, model: str) -> Body:
    """Return the effort for a budget of thinking. Without a field for it, a budget is only a hint."""
    if not isinstance(budget, int) or budget <= 0 or not _EFFORT_MODELS.match(model):
        return {}
    return {"reasoning_effort": next((effort for most, effort in _EFFORT_BUDGETS if budget <= most), "high")}


def list_entries(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list of a request; refuse any other value."""
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        raise RequestFailed(f"{name}: must be a list", param=name)
    return value or []


def text_part(text: str) -> Body:
    """Return a text of Chat Completions."""
    return {"type": "text", "text": text}


def image_part(url: str) -> Body:
    """Return an image of Chat Completions."""
    return {"type": "image_url", "image_url": {"url": url}}


def simplify_content(parts: list[Body]) -> Any:
    """Return content parts as one text, which every server understands, if all of them are texts."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def function_call(id: str, name: str, arguments: str) -> Body:
    """Return a tool call of Chat Completions."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class ChatMessages:
    """Builds the messages of Chat Completions; the parts of one turn of the model become one message.

    The result of a tool is a text in Chat Completions. Its images follow in a message of the user, after all
    results of the turn.
    """

    def __init__(self) -> None:
        self._messages: list[Body] = []
        # The images of the latest results, each list after a text that names the call.
        self._images: list[Body] = []

    def finish(self) -> list[Body]:
        """Return all messages."""
        self._add_images()
        return self._messages

    def add(self, role: str, parts: list[Body]) -> None:
        """Add a message of anybody but the model."""
        if role == "user":
            parts, self._images = [*self._images, *parts], []
        self._add_images()
        self._messages.append({"role": role, "content": simplify_content(parts)})

    def add_result(self, call_id: str, parts: list[Body], *, is_error: bool = False) -> None:
        """Add the result of a tool."""
        texts = [part for part in parts if part["type"] == "text"]
        if images := [part for part in parts if part["type"] != "text"]:
            texts.append(text_part(f"[{len(images)} image(s); see the next message of the user]"))
            self._images += [text_part(f"Image(s) in the result of the tool call {call_id}:"), *images]
        text = simplify_content(texts)
        content = f"Error: {text}" if is_error else text
        self._messages.append({"role": "tool", "content": content, "tool_call_id": call_id})

    def _add_images(self) -> None:
        if self._images:
            self._messages.append({"role": "user", "content": self._images})
            self._images = []

    def add_reply(self, *, text: str = "", reasoning: str = "", calls: Iterable[Body] = ()) -> None:
        """Add a part of the model's turn."""
        self._add_images()
        last = self._messages[-1] if self._messages else {}
        if last.get("role") != "assistant":
            last = {"role": "assistant", "content": None}
            self._messages.append(last)
        if text:
            last["content"] = (last["content"] or "") + text
        if reasoning:
            last["reasoning_content"] = last.get("reasoning_content", "") + reasoning
        if new := list(calls):
            last["tool_calls"] = [*last.get("tool_calls", ()), *new]


class CompletionReply:
    """The parts of a reply of Chat Completions, or of one chunk of it."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.id = str_or_empty(body.get("id"))
        self.model = str_or_empty(body.get("model"))
        choices = dicts_or_empty(body.get("choices"))
        choice = choices[0] if choices else {}
        message = dict_or_empty(choice.get("message") or choice.get("delta"))
        self.finish_reason = str_or_empty(choice.get("finish_reason"))
        self.text = str_or_empty(message.get("content"))
        self.refusal = str_or_empty(message.get("refusal"))
        # Servers have two names for it.
        self.reasoning = str_or_empty(message.get("reasoning_content") or message.get("reasoning"))
        self.calls = dicts_or_empty(message.get("tool_calls"))
        self.usage = dict_or_empty(body.get("usage"))

    @property
    def input_tokens(self) -> int:
        """All tokens of the prompt."""
        return _count(self.usage.get("prompt_tokens"))

    @property
    def cached_tokens(self) -> int:
        """The tokens of the prompt that were read from a cache."""
        return _count(dict_or_empty(self.usage.get("prompt_tokens_details")).get("cached_tokens"))

    @property
    def output_tokens(self) -> int:
        """The tokens of the reply."""
        return _count(self.usage.get("completion_tokens"))

    @property
    def reasoning_tokens(self) -> int:
        """The tokens of the reply that are reasoning."""
        return _count(dict_or_empty(self.usage.get("completion_tokens_details")).get("reasoning_tokens"))


def parse_call(call: Mapping[str, Any]) -> tuple[str, str, Body]:
    """Return the id, name and arguments of a tool call."""
    function = dict_or_empty(call.get("function"))
    name = str_or_empty(function.get("name"))
    arguments = parse_arguments(function.get("arguments"))
    if arguments is None:
        raise RequestFailed(f"the model called {name[:100]!r} with arguments that are not a JSON object", 502)
    return str_or_empty(call.get("id")), name, dict(arguments)


class CallCollector:
    """Joins the pieces of the tool calls of a stream.

    Some servers send no index, or the same for all calls; others send a new id with every piece.
    """

    def __init__(self) -> None:
        self.calls: list[Body] = []
        self._indexes: list[int] = []

    def add(self, call: Mapping[str, Any], position: int) -> int:
        """Add a piece of a call, which is at a position in its chunk, and return the number of the call."""
        given, id, function = call.get("index"), str_or_empty(call.get("id")), dict_or_empty(call.get("function"))
        index, name = given if isinstance(given, int) else position, str_or_empty(function.get("name"))
        number = next((n for n in reversed(range(len(self.calls))) if self._indexes[n] == index), -1)
        if number < 0 or (name and id and id != self.calls[number]["id"]):
            number = len(self.calls)
            self._indexes.append(index)
            self.calls.append(function_call(id, "", ""))
        known = self.calls[number]["function"]
        known["name"] = known["name"] or name
        known["arguments"] += str_or_empty(function.get("arguments"))
        return number


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def check_error(reply: Body) -> Body:
    """Raise the error that an upstream has sent with a status of success."""
    if error := reply.get("error"):
        message = str_or_empty(error) or str_or_empty(dict_or_empty(error).get("message"))
        raise RequestFailed(message or "the upstream failed; try again", 502)
    return reply


class EventWriter(ABC):
    """Translates the chunks of a streamed reply to the events of another API."""

    @abstractmethod
    def handle_chunk(self, chunk: CompletionReply) -> list[Body]:
        """Return the events that follow from a chunk."""

    @abstractmethod
    def finish(self) -> list[Body]:
        """Return the last events; none if the upstream has not ended its reply."""


class Translator(ABC):
    """Translates one request and its reply."""

    @abstractmethod
    def translate_request(self, body: Mapping[str, Any]) -> Body:
        """Return the request for Chat Completions; raise `RequestFailed` for what it cannot carry."""

    @abstractmethod
    def translate_reply(self, reply: CompletionReply) -> Body:
        """Return a whole reply in the client's API."""

    @abstractmethod
    def translate_error(self, status: int, body: Mapping[str, Any]) -> Body:
        """Return an error of the upstream in the client's API."""

    @abstractmethod
    def write_events(self) -> EventWriter:
        """Return the translator of a streamed reply."""
