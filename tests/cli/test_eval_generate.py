from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.cli.main import toolcrib

TOOLS = [
    {"name": "send_email", "description": "Send an email to someone.", "server": "mail"},
    {"name": "send_email", "description": "Send an email to someone.", "server": "post"},
    {"name": "get_forecast", "description": "Return the weather forecast of a city.", "server": "weather"},
]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def answer(request: Request) -> Turn:
        name = json.loads(request.user_text.partition("\n")[2])["name"]
        return Turn(json.dumps([f"please run {name}", f"a request about {name.partition('_')[2]} things"]))

    with ScriptedModel(answer) as running:
        yield running


@pytest.fixture
def catalog_file(tmp_path: Path) -> str:
    path = tmp_path / "catalog.jsonl"
    path.write_text("".join(json.dumps({**tool, "input_schema": {}}) + "\n" for tool in TOOLS))
    return str(path)


def _generate(model: ScriptedModel, catalog_file: str, folder: Path, *arguments: str, input: str = "") -> Result:
    options = ["--generate", "--catalog", catalog_file, "--model-url", f"{model.url}/v1", "--model", "any"]
    return CliRunner().invoke(toolcrib, ["eval", *options, str(folder), *arguments], input=input)


def _queries(folder: Path) -> list[tuple[str, list[str]]]:
    lines = (folder / "queries.jsonl").read_text().splitlines()
    return [(row["query"], row["relevant"]) for row in map(json.loads, lines)]


def test_generated_set_can_be_evaluated(model: ScriptedModel, catalog_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    result = _generate(model, catalog_file, folder, "--yes")
    assert result.exit_code == 0, result.output
    copies = ["mail___send_email", "post___send_email"]
    assert _queries(folder) == [
        ("a request about email things", copies),
        ("a request about email things", copies),
        ("a request about forecast things", ["weather___get_forecast"]),
    ]
    evaluated = CliRunner().invoke(toolcrib, ["eval", str(folder), "--json"])
    assert evaluated.exit_code == 0, evaluated.output


def test_person_approves_edits_and_stops(
    model: ScriptedModel, catalog_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.cli.catalog.eval_generate.is_interactive", lambda: True)
    folder = tmp_path / "set"
    result = _generate(model, catalog_file, folder, input="n\ne\nwrite to my boss\nq\n")
    assert result.exit_code == 0, result.output
    assert [query for query, _ in _queries(folder)] == ["write to my boss"]
    assert "1 query added" in result.output
    again = _generate(model, catalog_file, folder, input="y\n")
    assert "weather___get_forecast" in again.output
    assert len(_queries(folder)) == 2


def test_queries_need_approval(model: ScriptedModel, catalog_file: str, tmp_path: Path) -> None:
    result = _generate(model, catalog_file, tmp_path / "set")
    assert result.exit_code == 2 and "add --yes" in result.output


def test_options_of_the_generation_need_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(toolcrib, ["eval", str(tmp_path), "--yes"])
    assert result.exit_code == 2 and "need --generate" in result.output
    result = CliRunner().invoke(toolcrib, ["eval", "--generate", "a", "b"])
    assert result.exit_code == 2 and "name one FOLDER" in result.output


def test_tools_that_no_query_finds_are_reported_with_a_reason(tmp_path: Path) -> None:
    tools = [{"id": f"t{n}", "name": f"send_email_{n}", "description": "Send an email."} for n in range(8)]
    tools.append({"id": "odd", "name": "flux", "description": "Capacitor."})
    queries = [
        {"id": "1", "query": "send an email", "relevant": ["odd"]},
        {"id": "2", "query": "flux capacitor", "relevant": ["t1"]},
    ]
    (tmp_path / "tools.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in tools))
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    result = CliRunner().invoke(toolcrib, ["eval", str(tmp_path), "--mode", "lexical", "--json"])
    found = json.loads(result.stdout)["sets"][0]["never_found"]["lexical"]
    assert [(tool["id"], tool["query"], tool["first_hit"]) for tool in found] == [
        ("odd", "send an email", "t0"),
        ("t1", "flux capacitor", "odd"),
    ]
    assert found[0]["verdict"] == "does not match 'send an email' in mode lexical"
    printed = CliRunner().invoke(toolcrib, ["eval", str(tmp_path), "--mode", "lexical"]).output
    assert "never found in mode lexical by their own queries: 2 tools" in printed


def test_tool_with_half_a_surrogate_pair_is_written(model: ScriptedModel, tmp_path: Path) -> None:
    catalog_file, folder = tmp_path / "catalog.json", tmp_path / "set"
    catalog_file.write_text('{"name": "send_email", "description": "Send an email \\ud83d", "input_schema": {}}')
    result = _generate(model, str(catalog_file), folder, "--yes")
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "tools.jsonl").read_text())["description"] == "Send an email \ud83d"
