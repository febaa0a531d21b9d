"""Large bodies are read in pieces, to the same value, and nobody else waits for it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from tests.gateway.llm.anthropic.requests import deferred_tool, user_message
from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import gateway_for_upstream, running_llm_gateway
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm import incremental_json, json_body
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.incremental_json import TooManyContainers, read_in_pieces

words = st.text(max_size=30) | st.sampled_from(["]", '"', "\\", '{"a":[', ",", "\n", "é" * 9])
scalars = st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(allow_nan=False) | words
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)
SMALL = 24


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that also short texts are taken apart."""
    monkeypatch.setattr(incremental_json, "PIECE_BYTES", SMALL)


@settings(max_examples=80, deadline=None)
@given(anything, st.sampled_from([None, 1]), st.booleans())
def test_what_is_read_in_pieces_is_what_is_read_at_once(
    value: Any, indent: int | None, ascii: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(incremental_json, "PIECE_BYTES", SMALL)
        assert _outcome(read_in_pieces, data) == _outcome(from_json, data)


@settings(max_examples=80, deadline=None)
@given(anything, st.integers(0, 200), st.sampled_from([b"", b",", b"]", b"}", b'"', b"[", b"\\"]))
def test_what_is_broken_is_refused_as_at_once(value: Any, place: int, sign: bytes) -> None:
    whole = json.dumps(value).encode()
    cut = whole[: place % (len(whole) + 1)]
    data = cut + sign + whole[len(cut) + (not sign) :]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(incremental_json, "PIECE_BYTES", SMALL)
        assert _outcome(read_in_pieces, data) == _outcome(from_json, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"[" + b"1," * 60 + b"]",
        b"[" + b"1," * 60 + b",1]",
        b"[" + b"[1]," * 60 + b"}",
        b'{"a": 1' + b" " * 60 + b', "b": 2} 3',
        b'{"a' + b"x" * 60 + b'" 1}',
        b'["' + b"x" * 60,
        b"[" + b"tru" * 20 + b"]",
        b'{"a": [' + b"1, " * 40 + b'1], "b" 2}',
        b"[" * 500 + b"]" * 500,
    ],
)
def test_faults_between_two_pieces_are_seen(small_pieces: None, data: bytes) -> None:
    assert _outcome(read_in_pieces, data) == _outcome(from_json, data) == "refused"


def test_the_parser_never_gets_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def measured(piece: bytes, **options: Any) -> Any:
        sizes.append(len(piece))
        return from_json(piece, **options)

    monkeypatch.setattr(incremental_json, "from_json", measured)
    hostile = {"tools": [[[1, {"a": []}]] * 40_000], "model": "m"}
    assert read_in_pieces(json.dumps(hostile).encode()) == hostile
    assert max(sizes) <= incremental_json.PIECE_BYTES + 2
    assert len(sizes) < 40, "and no fewer than that, or it would take for ever"


def test_more_containers_than_anybody_needs_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 50_000
    monkeypatch.setattr(incremental_json, "MAX_CONTAINERS", most)
    with pytest.raises(TooManyContainers):
        read_in_pieces(b"[" + b"[]," * most + b"[]]")
    # Brackets in texts are not counted.
    said = json.dumps(["[" * (most + 1)] * 2).encode()
    assert len(read_in_pieces(said)) == 2


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_a_body_of_nothing_but_brackets_is_refused_in_the_words_of_the_api(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_json, "MAX_CONTAINERS", 50_000)
    data = b'{"model": "m", "tools": [' + b"[]," * 100_000 + b"[]]}"
    upstreams = tuple(
        LlmUpstreamConfig(api, api=api, url="http://127.0.0.1:9") for api in ("messages", "openai")
    )
    with running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams))) as served:
        answer = httpx2.post(f"{served.url}{path}", content=data, timeout=60)
    assert answer.status_code == 413
    assert "50,000 lists and objects" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_others_are_answered_while_a_large_body_is_read(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_are_done, is_read = threading.Event(), threading.Event()

    def slow(data: bytes) -> Any:
        is_read.set()
        assert others_are_done.wait(30)
        return from_json(data)

    monkeypatch.setattr(json_body, "read_in_pieces", slow)
    reply = b'{"id": "x"}'
    large = {"model": "m", "padding": list(range(90_000)), "messages": [], "input": "Hi"}
    upstream = ScriptedAnswer([reply], content_type="application/json", length=len(reply))
    with raw_upstream(always=upstream) as model, ThreadPoolExecutor(1) as threads:
        upstreams = tuple(
            LlmUpstreamConfig(api, api=api, url=model.url) for api in ("messages", "openai")
        )
        with running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams))) as served:
            url = f"{served.url}{path}"
            waiting = threads.submit(httpx2.post, url, json=large, timeout=60)
            assert is_read.wait(30)
            for _ in range(5):
                assert httpx2.post(url, json={"model": "m"}, timeout=30).status_code == 200
            assert not waiting.done()
            others_are_done.set()
            assert waiting.result(60).status_code == 200


def test_many_tools_are_searched_when_their_body_is_read_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_body, "MANY_SIGNS", 5_000)
    tools = [deferred_tool(f"tool_{number}", "words, " * 20) for number in range(1_000)]
    tools += [deferred_tool("read_tide", "Tell when the water is high")]
    tools.insert(0, {"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"})
    assert json_body._is_intricate(json.dumps({"tools": tools}).encode())
    request = {"model": "m", "max_tokens": 9, "messages": [user_message("Tide?")], "tools": tools}
    with ScriptedModel([Turn("Aye.")]) as model, gateway_for_upstream(model.url) as served:
        reply = httpx2.post(f"{served.url}/v1/messages", json=request, timeout=60)
    assert reply.json()["content"][0]["text"] == "Aye."
    assert model.requests[0].tool_names == ("tool_search_tool_bm25",)


def _outcome(read: Any, data: bytes) -> Any:
    try:
        return json.dumps(read(data))
    except ValueError:
        return "refused"
