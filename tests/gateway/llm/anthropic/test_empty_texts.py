"""Models that send empty text blocks."""

from __future__ import annotations

import pytest

from tests.gateway.llm.anthropic.requests import BM25, HARBOUR, bm25_search, conversation_with
from tests.support.scripted_model.turn import Text, Turn


@pytest.mark.parametrize("stream", [False, True])
def test_empty_texts_of_a_model_are_not_sent_back_to_it(stream: bool) -> None:
    turns = [Turn(Text(""), bm25_search("tide")), Turn("Done.")]
    with conversation_with(turns, stream=stream) as conversation:
        conversation.send([BM25, *HARBOUR], "Tide?")
        history = conversation.upstream_requests[1].body["messages"]
    assert [block["type"] for block in history[1]["content"]] == ["tool_use"]
