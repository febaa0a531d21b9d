from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Failure, Turn
from toolcrib import SearchEngine, read_catalog_file
from toolcrib.cli.main import toolcrib
from toolcrib.config.loader import load_config
from toolcrib.embedders import json_endpoint
from toolcrib.enrichment.example_file import add_example_requests, read_example_requests
from toolcrib.errors import InvalidCatalogFile
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.startup import open_hub

SEND = {"name": "send_email", "description": "Send an email to someone.", "inputSchema": {"type": "object"}}
WEATHER = {"name": "get_forecast", "description": "Return the weather forecast of a city.", "inputSchema": {}}
ANSWERS = {
    "send_email": ["write an email to my boss", "mail the report to Ann"],
    "get_forecast": ["send an email to my boss", "will it rain in Oslo tomorrow?"],
}


def _answer(request: Request) -> Turn:
    name = json.loads(request.user_text.partition("\n")[2])["name"]
    return Turn(json.dumps({"requests": ANSWERS[name]}))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(json_endpoint, "FIRST_PAUSE_SECONDS", 0.0)
    with ScriptedModel(_answer) as running:
        yield running


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    """A configuration whose store has the tools of one server."""
    path = tmp_path / "toolcrib.json"
    path.write_text(json.dumps({"mcpServers": {"office": {"command": "x"}}, "store": f"sqlite:///{tmp_path / 's.db'}"}))
    config = load_config(path)
    with closing(open_hub(config)) as hub:
        hub.update_server(config.servers["office"], build_manifest(config.servers["office"], [SEND, WEATHER], {}))
    return str(path)


@pytest.fixture
def catalog_file(tmp_path: Path) -> str:
    path = tmp_path / "tools.jsonl"
    path.write_text("".join(json.dumps({**tool, "server": "office"}) + "\n" for tool in (SEND, WEATHER)))
    return str(path)


def _run(model: ScriptedModel, *arguments: str) -> Result:
    options = ["--model-url", f"{model.url}/v1", "--model", "any"]
    return CliRunner().invoke(toolcrib, ["enrich", *options, *arguments])


def _json(model: ScriptedModel, *arguments: str) -> Any:
    result = _run(model, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_checked_requests_are_kept_in_the_store_and_searched(model: ScriptedModel, config_file: str) -> None:
    with closing(open_hub(load_config(config_file))) as hub:
        report = _json(model, "--config", config_file)
        kept = {tool["id"]: tool["requests"] for tool in report["tools"]}
        assert kept == {
            "office___send_email": ANSWERS["send_email"],
            "office___get_forecast": ["will it rain in Oslo tomorrow?"],
        }
        (rejected,) = report["tools"][1]["rejected"]
        assert rejected["request"] == "send an email to my boss"
        before = {pin.tool: pin.fingerprint for pin in hub.store.get_pins("office").values()}
        assert hub.refresh()
        entry = hub.directory.entries["office___send_email"]
        assert entry.tool.example_requests == tuple(ANSWERS["send_email"])
        assert "examples" not in entry.wire_definition
        assert {pin.tool: pin.fingerprint for pin in hub.store.get_pins("office").values()} == before
        hit = hub.engine.search("boss", mode="lexical").hits[0]
        assert hit.tool.id == "office___send_email"


def test_second_run_asks_only_for_new_tools(model: ScriptedModel, config_file: str) -> None:
    assert len(_json(model, "--config", config_file, "--limit", "1")["tools"]) == 1
    assert [tool["id"] for tool in _json(model, "--config", config_file)["tools"]] == ["office___get_forecast"]
    assert _json(model, "--config", config_file)["tools"] == []
    assert len(model.requests) == 2


def test_dry_run_keeps_nothing(model: ScriptedModel, config_file: str) -> None:
    result = _run(model, "--config", config_file, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "+ write an email to my boss" in result.output
    assert "- send an email to my boss (" in result.output
    assert "3 requests for 2 tools would be kept, 1 rejected." in result.output
    with closing(open_hub(load_config(config_file))) as hub:
        assert hub.store.list_example_requests() == {}


def test_dry_run_with_a_catalog_needs_no_file(model: ScriptedModel, catalog_file: str) -> None:
    result = _run(model, "--catalog", catalog_file, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "would be kept" in result.output


def test_server_filter_selects_tools(model: ScriptedModel, config_file: str) -> None:
    assert _json(model, "--config", config_file, "--server", "other")["tools"] == []


def test_requests_of_a_file_are_used_by_the_library(model: ScriptedModel, catalog_file: str, tmp_path: Path) -> None:
    out = tmp_path / "requests.jsonl"
    _json(model, "--catalog", catalog_file, "--out", str(out), "--jobs", "2")
    requests = read_example_requests(out)
    catalog = add_example_requests(read_catalog_file(catalog_file), requests)
    assert SearchEngine(catalog).search("boss", mode="lexical").hits[0].tool.name == "send_email"
    assert _json(model, "--catalog", catalog_file, "--out", str(out))["tools"] == []


def test_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"fingerprint": "x", "requests": "no list"}\n')
    with pytest.raises(InvalidCatalogFile, match="needs a `fingerprint`"):
        read_example_requests(path)


def test_failure_of_one_tool_does_not_affect_the_others(
    catalog_file: str, tmp_path: Path, model: ScriptedModel
) -> None:
    def answer(request: Request) -> Turn | Failure:
        return _answer(request) if "get_forecast" in request.user_text else Turn("I would rather not.")

    with ScriptedModel(answer) as broken:
        report = _json(broken, "--catalog", catalog_file, "--out", str(tmp_path / "out.jsonl"))
    assert "returned no requests" in report["tools"][0]["error"]
    assert report["tools"][1]["requests"] == ["will it rain in Oslo tomorrow?"]


def test_model_that_always_fails_ends_the_run(catalog_file: str, tmp_path: Path, model: ScriptedModel) -> None:
    with ScriptedModel(lambda request: Failure(401, "no key")) as broken:
        result = _run(broken, "--catalog", catalog_file, "--out", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 1
    assert "the key is missing or wrong" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--catalog", "x.jsonl"], "--catalog needs --out"), (["--out", "x.jsonl"], "--out needs --catalog")],
)
def test_options_that_do_not_fit_are_errors(model: ScriptedModel, arguments: list[str], message: str) -> None:
    result = _run(model, *arguments)
    assert result.exit_code == 2 and message in result.output


def test_model_is_needed() -> None:
    result = CliRunner().invoke(toolcrib, ["enrich"])
    assert result.exit_code == 2 and "--model-url and --model are needed" in result.output
