from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Failure, Turn
from toolcrib import Tool
from toolcrib.embedders import json_endpoint
from toolcrib.enrichment.writer import RequestWriter
from toolcrib.errors import EnrichmentFailed, InvalidConfig

TOOL = Tool("send_email", "Send an email.", {"type": "object", "properties": {"to": {"type": "string"}}}, server="mail")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(json_endpoint, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield


def _write(*turns: Turn | Failure) -> list[str]:
    with ScriptedModel(turns) as model:
        return RequestWriter(f"{model.url}/v1", "any").write_requests(TOOL, 2)


@pytest.mark.parametrize(
    "reply",
    [
        '{"requests": ["write to  my boss", "answer Ann"]}',
        '```json\n{"requests": ["write to my boss", "answer Ann", "answer Ann", 3, ""]}\n```',
        'Here you are: ["write to my boss", "answer\\nAnn"]',
    ],
)
def test_requests_are_read_from_a_reply(reply: str) -> None:
    assert _write(Turn(reply)) == ["write to my boss", "answer Ann"]


@pytest.mark.parametrize("reply", ["I cannot do that.", "{not json}", '{"requests": 5}', "{}", ""])
def test_reply_without_requests_is_an_error(reply: str) -> None:
    with pytest.raises(EnrichmentFailed, match="returned no requests"):
        _write(Turn(reply))


def test_transient_failure_is_repeated() -> None:
    assert _write(Failure(429, "slow down"), Failure(503, "busy"), Turn('["write to my boss"]')) == ["write to my boss"]


def test_wrong_key_is_an_error_with_a_remedy() -> None:
    with pytest.raises(EnrichmentFailed, match="the key is missing or wrong"):
        _write(Failure(401, "no key"))


def test_model_gets_one_tool_as_data() -> None:
    def answer(request: Request) -> Turn:
        return Turn('["write to my boss"]')

    with ScriptedModel(answer) as model:
        RequestWriter(f"{model.url}/v1", "small", key="secret").write_requests(TOOL, 2)
        (request,) = model.requests
    assert request.headers["authorization"] == "Bearer secret"
    assert request.body["model"] == "small"
    definition = json.loads(request.user_text.partition("\n")[2])
    assert definition == {"server": "mail", "name": "send_email", "description": "Send an email.", "parameters": ["to"]}


def test_options_are_checked() -> None:
    with pytest.raises(InvalidConfig, match="name of a model"):
        RequestWriter("http://localhost/v1", " ")
    with pytest.raises(InvalidConfig, match="not the URL of a chat completions endpoint"):
        RequestWriter("localhost", "any")
    with pytest.raises(InvalidConfig, match="timeout_seconds"):
        RequestWriter("http://localhost/v1", "any", timeout_seconds=0)
