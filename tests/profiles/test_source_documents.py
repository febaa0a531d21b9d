"""The code and configuration of the documents that the profiles emulate, run with only the imports replaced.

The documents are not part of this repository. They are read from the folder in TOOLCRIB_SEEDS, or from
`shared/seeds` next to the repository; without them, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib import Tool, Toolcrib
from toolcrib.profiles import claude, dynamic_registry, everruns, shipit
from toolcrib.profiles.dynamic_registry import DynamicToolAgent, DynamicToolRegistry, VersionedToolRegistry
from toolcrib.profiles.everruns import EverrunsContext, EverrunsToolSearch
from toolcrib.profiles.mcproxy import McproxyConfig, McproxyReply, McproxyToolSearch

SEEDS_FOLDER = Path(os.environ.get("TOOLCRIB_SEEDS") or Path(__file__).resolve().parents[3] / "shared" / "seeds")

pytestmark = pytest.mark.skipif(
    not SEEDS_FOLDER.is_dir(), reason=f"no documents in {SEEDS_FOLDER}; set TOOLCRIB_SEEDS to their folder"
)


def read_document(number: str) -> str:
    [path] = SEEDS_FOLDER.glob(f"{number}_*.txt")
    return path.read_text(encoding="utf-8")


def read_function(document: str, name: str, next_heading: str) -> str:
    """Return a function of a document that has lost its indentation; its body is not nested further."""
    start = document.index(f"def {name}(")
    header, _, body = document[start : document.index(next_heading, start)].partition("\n")
    return f"{header}\n{textwrap.indent(body, '    ')}"


def read_value(document: str, name: str, next_line: str) -> Any:
    """Return the value of a top-level assignment in a document."""
    start = document.index(f"{name} = {{")
    namespace: dict[str, Any] = {}
    exec(document[start : document.index(next_line, start)], namespace)
    return namespace[name]


def read_json_blocks(document: str) -> list[Any]:
    """Return the JSON in the code blocks of a document, without excerpts."""
    blocks = []
    for text in re.findall(r"```json\n(.*?)```", document, re.DOTALL):
        try:
            blocks.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return [block for block in blocks if isinstance(block, dict)]


def without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [without_descriptions(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_descriptions(item) for key, item in value.items() if key != "description"}


# ---------------------------------------------------------------------------------- 002: Chapter 23


def load_chapter() -> dict[str, Any]:
    """Return the functions of the chapter's example, which use our classes."""
    document = read_document("002")
    namespace: dict[str, Any] = {
        "DynamicToolAgent": DynamicToolAgent,
        "DynamicToolRegistry": DynamicToolRegistry,
        "VersionedToolRegistry": VersionedToolRegistry,
    }
    exec(read_function(document, "build_enterprise_registry", "23.6 "), namespace)
    exec(read_function(document, "demonstrate_adaptive_capability", "23.7 "), namespace)
    return namespace


def test_chapter_registry_is_built_and_searched(capsys: pytest.CaptureFixture[str]) -> None:
    registry = load_chapter()["build_enterprise_registry"]()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"Registry: {len(registry.tools)} tools registered"
    assert str(registry.list_categories()) in printed[1]
    sms = registry.tools["send_sms"]
    assert (sms.category, sms.version, sms.usage_count, sms.last_used) == ("communication", "1.0", 0, None)
    assert sms.definition["input_schema"]["required"] == ["phone", "message"]
    assert registry.search("reach somebody on their handset")[0]["name"] == "send_sms"
    found = json.loads(registry.call("search_tools", {"query": "reach somebody on their handset"}))
    assert found["tools"][0]["name"] == "send_sms"
    assert registry.execute("send_sms", {"phone": "+1", "message": "hi"})["status"] == "sent"
    assert registry.tools["send_sms"].usage_count == 1
    with pytest.raises(ValueError, match="Tool not found: fax"):
        registry.execute("fax", {})


def test_chapter_meta_tools_have_the_same_schemas() -> None:
    document = read_document("002")
    search = read_value(document, "tool_search_tool", "execute_dynamic_tool = {")
    execute = read_value(document, "execute_dynamic_tool", "23.3 ")
    ours = [{"name": tool.name, "input_schema": tool.input_schema} for tool in dynamic_registry.META_TOOLS]
    assert without_descriptions(ours) == without_descriptions([search, execute])


def test_chapter_tasks_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def search(query: str) -> ToolCall:
        return ToolCall("search_tools", {"query": query})

    def execute(name: str, /, **tool_input: Any) -> ToolCall:
        return ToolCall("execute_dynamic_tool", {"tool_name": name, "tool_input": tool_input})

    turns = [
        Turn(search("notify somebody by mail")),
        Turn(execute("send_email", to="a@example.com", subject="Off", body="Tomorrow.")),
        Turn("Sent."),
        Turn(search("customer relationship record"), search("follow-up work item")),
        Turn(execute("get_salesforce_contact", name="Ann"), execute("read_excel", path="customers.xlsx")),
        Turn(execute("create_jira_ticket", project="S", summary="Call Ann", issue_type="Task")),
        Turn("Opened."),
        Turn(search("ask the database"), search("reach somebody on their handset")),
        Turn(execute("query_mysql", sql="SELECT 1", database="shop")),
        Turn(execute("send_sms", phone="+1", message="10 % off")),
        Turn("Texted."),
    ]
    with ScriptedModel(turns) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        assert load_chapter()["demonstrate_adaptive_capability"]() == ("Sent.", "Opened.", "Texted.")
        requests = model.requests
    results = [json.loads(result) for request in requests for result in request.results]
    first_found = [result["tools"][0]["name"] for result in results if "found" in result]
    assert first_found == ["send_email", "get_salesforce_contact", "create_jira_ticket", "query_mysql", "send_sms"]
    unknown = [result for result in results if "error" in result]
    assert unknown == [{"error": "Tool not found: read_excel", "suggestion": dynamic_registry.VERIFY_NAME}]
    assert {request.body["model"] for request in requests} == {"claude-opus-4-5"}
    assert {request.body["system"] for request in requests} == {dynamic_registry.SYSTEM_PROMPT}
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("[Meta-tool] ") for line in lines) == 11
    assert '[Meta-tool] search_tools: {"query": "notify somebody by mail"}' in lines


# --------------------------------------------------------------------------------------- 000: shipit


def test_shipit_page_swap_runs() -> None:
    pytest.importorskip("shipit_agent", reason="shipit-agent is not installed")
    from toolcrib.frameworks.shipit_agent import ToolSearchTool

    document = read_document("000")
    [swap] = re.findall(r"^agent\.tools = .*\nagent\.tools\.append\(.*\)$", document, re.MULTILINE)
    agent = SimpleNamespace(tools=[SimpleNamespace(name="tool_search"), SimpleNamespace(name="open_url")])
    exec(swap, {"agent": agent, "ToolSearchTool": ToolSearchTool})
    replaced = agent.tools[-1]
    assert [tool.name for tool in agent.tools] == ["open_url", "tool_search"]
    assert (replaced.max_limit, replaced.default_limit, replaced.token_bonus) == (15, 8, 0.20)


def test_shipit_page_sample_has_the_format_but_not_the_scores_of_its_algorithm() -> None:
    document = read_document("000")
    sample = re.findall(r"^\d\. (\w+) \(score=([\d.]+)\) — (.*)\n   ↳ when to use: (.*)$", document, re.MULTILINE)
    tools = [{"name": name, "description": text, "prompt_instructions": hint} for name, _, text, hint in sample]
    call = json.loads(re.findall(r'^\{"name": "tool_search".*\}$', document, re.MULTILINE)[0])
    context = SimpleNamespace(state={"available_tools": tools})
    output = shipit.ToolSearchTool().run(context, **call["arguments"])
    lines = output.text.splitlines()
    assert lines[0] in document
    assert output.metadata["matches"][0]["name"] == sample[0][0]
    assert f"   ↳ when to use: {sample[0][3]}" in lines
    ours = {match["name"]: match["score"] for match in output.metadata["matches"]}
    assert ours != {name: float(score) for name, score, _, _ in sample}


# ----------------------------------------------------------------------------------------- 001: Claude


def test_claude_page_request_is_read_and_searched() -> None:
    document = read_document("001")
    [request] = [block for block in read_json_blocks(document) if "messages" in block]
    assert [tool.name for tool in Toolcrib([request]).catalog] == ["get_weather", "search_files"]
    assert claude.find_refusal(request) is None
    search = claude.ClaudeToolSearch(list(Toolcrib([request]).catalog))
    excerpt = re.search(r'"tool_references": \[\s*\{.*?\}\s*\]', document, re.DOTALL)
    assert excerpt
    answer = search.search(claude.REGEX, {"pattern": "weather"})
    assert answer["tool_references"] == json.loads(f"{{{excerpt[0]}}}")["tool_references"]
    assert search.search(claude.REGEX, {"pattern": "a" * 201})["type"] == "tool_search_tool_result_error"


@pytest.mark.parametrize("variant", ["regex", "bm25"])
def test_claude_page_search_tools_can_be_chosen(variant: Any) -> None:
    blocks = read_json_blocks(read_document("001"))
    [entry] = [block for block in blocks if block.get("name") == f"tool_search_tool_{variant}"]
    tools = Toolcrib([Tool(f"tool_{number}", "x" * 4_000) for number in range(20)]).session(native=variant)
    assert tools.tools("anthropic")[0] == entry


# --------------------------------------------------------------------------------------- 003: everruns


def test_everruns_page_configuration_is_read_as_printed() -> None:
    document = read_document("003")
    decoder = json.JSONDecoder()
    starts = [match.start() for match in re.finditer(r'\{ "capabilities"', document)]
    by_list, by_map = (decoder.raw_decode(document, start)[0] for start in starts)
    assert EverrunsToolSearch().with_config(by_list).threshold == everruns.THRESHOLD
    configured = EverrunsToolSearch().with_config(by_map)
    assert (configured.threshold, configured.never_defer) == (
        20,
        {*by_map["capabilities"]["tool_search"]["never_defer"]},
    )
    names = re.findall(r"with_never_defer\(\[(.*?), \.\.\.\]\)", document)[0]
    assert EverrunsToolSearch().with_never_defer(json.loads(f"[{names}]")).never_defer == {"read_file", "bash"}


def test_everruns_page_ranking_holds() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [Tool("read_file", "Show what a file says.", schema), Tool("list_folder", "Show each file.", schema)]
    tools += [Tool(f"other_{number}", "Do another thing.", schema) for number in range(13)]
    search = EverrunsToolSearch()
    hidden = search.advertise(tools, "s")[0].parameters
    assert "read_file" in json.dumps(hidden) and "properties" not in hidden
    context = EverrunsContext(tools, {tool.name for tool in tools}, "s")
    assert search.search({"query": '"read_file"'}, context)["loaded"] == ["read_file"]
    assert search.advertise(tools, "s")[0].parameters == schema
    assert len(search.search({"query": "other"}, context)["loaded"]) == everruns.MAX_RESULTS
    assert len(search.search({"query": "knitting"}, context)["available_tools"]) == len(tools)


# ---------------------------------------------------------------------------------------- 004: MCProxy


def test_mcproxy_page_configurations_are_read_as_printed() -> None:
    entries = [block for block in read_json_blocks(read_document("004")) if "type" in block]
    settings, logging = (McproxyConfig.from_json(entry) for entry in entries)
    printed = entries[0]["config"]
    assert (settings.enabled, settings.max_tools, settings.threshold) == (True, printed["maxToolsLimit"], 0.1)
    assert list(settings.selection_order) == printed["toolSelectionOrder"]
    assert logging == McproxyConfig(debug=True)


def test_mcproxy_page_search_tool_and_answer_have_the_same_form() -> None:
    document = read_document("004")
    [printed] = [block for block in read_json_blocks(document) if block.get("name") == "search_available_tools"]
    tools = [Tool(f"tool_{number:03}", "Do a thing.", server="other") for number in range(198)]
    tools += [
        Tool("create_issue", "Create a new GitHub issue", server="github"),
        Tool("list_issues", "List repository issues", server="github"),
    ]
    search = McproxyToolSearch(tools, servers=["other", "github"])
    listing = search.list_tools()
    tool = listing.tools[-1]
    assert {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} == printed
    reply = search.search({"query": "github issue"}, listing.session)
    assert "1. github___create_issue - Create a new GitHub issue" in document
    assert isinstance(reply, McproxyReply)
    assert reply.text.splitlines()[2] == "1. github___create_issue - Create a new GitHub issue"
    for query in re.findall(r"^\| `(.+?)` \|", document, re.MULTILINE):
        found = {match.tool.name for match in search.find_matches(query)}
        assert found <= {"github___create_issue", "github___list_issues"}, query
