from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.gateway.llm.openai_responses.requests import (
    CLIENT,
    Json,
    assistant_message,
    build_rewriter,
    deferred_functions,
    function_call,
    new_memory,
    response,
    search_call,
    transparent_index,
)
from tests.gateway.llm.serving_openai import functions
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.openai_responses.stream import ResponsesStream


def response_events(*items: Json, id: str = "resp_1", status: str = "completed") -> Iterator[Json]:
    """Yield the events of a response of an upstream."""
    head: Json = {"id": id, "status": "in_progress", "output": [], "tools": [], "usage": None}
    yield {"type": "response.created", "response": head}
    yield {"type": "response.in_progress", "response": head}
    for place, item in enumerate(items):
        empty: Json = {"arguments": ""} if "arguments" in item else {"content": []}
        begun = {**item, **empty, "status": "in_progress"}
        where = {"output_index": place, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": place, "item": begun}
        if item["type"] == "function_call":
            writing = "response.function_call_arguments"
            yield {"type": f"{writing}.delta", **where, "delta": item["arguments"]}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": f"{writing}.done", **where, **done}
        else:
            yield {"type": "response.output_text.delta", **where, "delta": "…"}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    whole = response(*items, id=id, status=status)
    yield {"type": f"response.{status}", "response": whole}


def handle_events(stream: ResponsesStream, given: Iterable[Json]) -> list[Json]:
    sent: list[Json] = []
    for event in given:
        sent += stream.handle_event(event)
        if stream.needs_search:
            sent += stream.run_search()
    return sent


def outline(sent: Iterable[Json]) -> list[tuple[str, Any, str]]:
    return [
        (item["type"].removeprefix("response."), item.get("output_index"), item.get("item", {}).get("type", ""))
        for item in sent
    ]


def test_search_events_come_in_order_of_api() -> None:
    stream = ResponsesStream(build_rewriter())
    sent = handle_events(stream, response_events(search_call()))
    assert stream.finish_round() == [] and not stream.is_complete
    sent += handle_events(stream, response_events(function_call("get_exchange_rate", currency="x"), id="resp_2"))
    last = stream.finish_round()
    assert stream.is_complete
    sent += last
    assert outline(sent) == [
        ("created", None, ""),
        ("in_progress", None, ""),
        ("output_item.added", 0, "tool_search_call"),
        ("output_item.done", 0, "tool_search_call"),
        ("output_item.added", 1, "tool_search_output"),
        ("output_item.done", 1, "tool_search_output"),
        ("output_item.added", 2, "function_call"),
        ("function_call_arguments.delta", 2, ""),
        ("function_call_arguments.done", 2, ""),
        ("output_item.done", 2, "function_call"),
        ("completed", None, ""),
    ]
    assert [item["sequence_number"] for item in sent] == list(range(len(sent)))
    begun, done, found = sent[2]["item"], sent[3]["item"], sent[4]["item"]
    assert (begun["status"], begun["arguments"]) == ("in_progress", {})
    assert (done["status"], done["arguments"]) == ("completed", {"paths": ["get_exchange_rate"]})
    assert found["tools"] == [functions(defer_loading=True)[0]]
    assert sent[6]["item"]["namespace"] == "get_exchange_rate"
    whole = sent[-1]["response"]
    assert whole["id"] == sent[0]["response"]["id"] == "resp_1"
    assert whole["output"] == [item["item"] for item in sent if item["type"].endswith("item.done")]
    assert whole["usage"]["input_tokens"] == 20
    assert whole["tools"] == deferred_functions()


def test_streamed_id_leads_to_stored_response() -> None:
    memory = new_memory()
    stream = ResponsesStream(build_rewriter(memory=memory))
    handle_events(stream, response_events(search_call()))
    assert stream.finish_round() == [] and not stream.is_complete
    handle_events(stream, response_events(function_call("get_exchange_rate", currency="x"), id="resp_2"))
    assert stream.finish_round() and stream.is_complete
    later = build_rewriter("Go on", memory=memory, body={"previous_response_id": "resp_1"}).next_request()
    assert later["previous_response_id"] == "resp_2"
    assert [tool["name"] for tool in later["tools"]] == ["search_tools", "get_exchange_rate"]


def test_transparent_client_gets_plain_stream() -> None:
    stream = ResponsesStream(build_rewriter(index=transparent_index(), tools=functions()))
    sent = handle_events(stream, response_events(assistant_message("I look."), search_call()))
    assert stream.finish_round() == [] and not stream.is_complete
    sent += handle_events(
        stream, response_events(assistant_message("Found."), function_call("get_exchange_rate", currency="x"))
    )
    last = stream.finish_round()
    assert stream.is_complete
    sent += last
    assert [kind for _, _, kind in outline(sent) if kind] == [
        "message",
        "message",
        "message",
        "message",
        "function_call",
        "function_call",
    ]
    places = [place for what, place, _ in outline(sent) if what == "output_item.added"]
    assert places == [0, 1, 2]
    assert [item["sequence_number"] for item in sent] == list(range(len(sent)))
    assert "search_tools" not in json.dumps(sent)


def test_text_next_to_search_is_forwarded_immediately() -> None:
    stream = ResponsesStream(build_rewriter(index=transparent_index(), tools=functions()))
    seen = [
        item["type"]
        for event in list(response_events(assistant_message("I look."), search_call()))[:4]
        for item in stream.handle_event(event)
    ]
    assert seen[-1] == "response.output_text.delta"


def test_checked_call_is_streamed_whole() -> None:
    stream = ResponsesStream(build_rewriter())
    sent = handle_events(stream, response_events(function_call("book_flight", destination="Rome")))
    assert outline(sent[2:]) == [
        ("output_item.added", 0, "function_call"),
        ("function_call_arguments.delta", 0, ""),
        ("function_call_arguments.done", 0, ""),
        ("output_item.done", 0, "function_call"),
    ]
    assert sent[2]["item"]["arguments"] == "" and sent[2]["item"]["status"] == "in_progress"
    assert sent[3]["delta"] == sent[4]["arguments"] == '{"destination": "Rome"}'
    hidden = ResponsesStream(build_rewriter())
    assert outline(handle_events(hidden, response_events(function_call("book_flight", where="Rome")))[2:]) == []
    assert hidden.finish_round() == [] and not hidden.is_complete


def test_client_search_is_streamed() -> None:
    stream = ResponsesStream(build_rewriter(tools=[CLIENT, *functions(defer_loading=True)]))
    sent = handle_events(stream, response_events(function_call("tool_search", goal="mail")))
    assert outline(sent[2:]) == [
        ("output_item.added", 0, "tool_search_call"),
        ("output_item.done", 0, "tool_search_call"),
    ]
    assert sent[3]["item"]["arguments"] == {"goal": "mail"}
    assert stream.finish_round() and stream.is_complete


def test_errors_and_unknown_events_are_forwarded_with_numbers() -> None:
    stream = ResponsesStream(build_rewriter())
    unknown = {"type": "response.news", "sequence_number": 77}
    assert handle_events(stream, [unknown]) == [{"type": "response.news", "sequence_number": 0}]
    odd: Json = {"type": "response.output_item.added", "item": None, "output_index": 0}
    assert handle_events(stream, [odd, {**odd, "type": "response.output_item.done"}])[0]["item"] is None
    assert not stream.is_ended
    handle_events(stream, [{"type": "error", "message": "overloaded"}])
    assert stream.is_ended and stream.is_final
    assert stream.finish_round() == []


def test_error_event_has_form_of_api_and_sdk() -> None:
    stream = ResponsesStream(build_rewriter())
    broke = stream.encode_error(RequestFailed("gone", 502), None)
    assert broke.startswith(b"event: error\n")
    error = json.loads(broke.partition(b"data: ")[2])
    assert error["type"] == "error" and error["message"] == error["error"]["message"] == "gone"
    own = json.loads(stream.encode_error(RequestFailed("x"), {"error": {"message": "busy"}}).partition(b"data: ")[2])
    assert own["error"] == {"message": "busy"} and own["sequence_number"] == 1


def test_items_without_start_event_are_streamed() -> None:
    stream = ResponsesStream(build_rewriter())
    done = [
        event
        for event in response_events(assistant_message("Hi."), search_call())
        if not event["type"].endswith("added")
    ]
    sent = handle_events(stream, done)
    whole = [story for story in outline(sent) if story[0] == "output_item.done"]
    assert whole == [
        ("output_item.done", 0, "message"),
        ("output_item.done", 1, "tool_search_call"),
        ("output_item.done", 2, "tool_search_output"),
    ]


def test_incomplete_response_ends_stream() -> None:
    stream = ResponsesStream(build_rewriter())
    sent = handle_events(stream, response_events(assistant_message("I am"), status="incomplete"))
    last = stream.finish_round()
    assert sent and last is not None
    assert last[0]["type"] == "response.incomplete"
