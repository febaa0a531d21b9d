from __future__ import annotations

import hashlib
import random
from importlib import import_module
from pathlib import Path

import pytest

from toolcrib import Tool
from training.servers import normalize_server, split_servers
from training.variation import vary_query, vary_tool_text


def test_checkpoint_is_computed_once_and_written_atomically(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the dependency group `train`")
    checkpoint = import_module("training.checkpoint")
    load_or_compute, save = checkpoint.load_or_compute, checkpoint.save
    file = tmp_path / "made.pt"
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [2, 3]

    assert load_or_compute(file, make) == load_or_compute(file, make) == [2, 3]
    assert made == [1]
    with pytest.raises(Exception, match="pickle"):
        save(file, lambda: None)
    assert load_or_compute(file, make) == [2, 3]


def test_published_queries_have_the_documented_checksum() -> None:
    folder = Path(__file__).parents[2] / "training"
    digest = hashlib.sha256((folder / "queries.jsonl").read_bytes()).hexdigest()
    assert f"| `queries.jsonl` | `{digest}` |" in (folder / "DATA.md").read_text(encoding="utf-8")


def test_names_of_one_server_are_normalized_to_the_same_words() -> None:
    names = ["@acme/linear-mcp", "Linear MCP Server", "mcp-server-linear", "linear"]
    assert {normalize_server(name) for name in names} == {"linear"}
    assert normalize_server("@devrev/mcp-server") == "devrev"


def test_a_server_is_on_one_side_of_the_split_in_all_catalogs() -> None:
    tools = {
        (catalog, f"{server}::{name}"): Tool(name, server=server)
        for number in range(40)
        for catalog, server in (
            ("one", f"product{number}-mcp-server"),
            ("other", f"vendor{number + 1} product{number}"),
            ("other", f"Product{number} MCP"),
        )
        for name in ("list_items", "delete_item")
    }
    sides = split_servers(tools)
    assert set(sides) == set(tools)
    for number in range(40):
        product = f"product{number}"
        assert (
            len({sides[key] for key in tools if product in key[1].lower().replace("-", " ").split("::")[0].split()})
            == 1
        )
    assert set(sides.values()) == {"train", "dev", "test"}


def test_servers_with_the_same_tools_are_on_the_same_side() -> None:
    description = "Return the {} of the parking lots near a place, with the number of free spaces of each."
    tools = {
        (f"catalog{copy}", f"{number}-{copy}-{part}"): Tool(
            f"tool_{part}", description.format(f"{part} {number}"), server=f"fork{copy}of{number}"
        )
        for number in range(30)
        for copy in range(2)
        for part in ("names", "prices")
    }
    sides = split_servers(tools)
    for number in range(30):
        assert len({sides[key] for key in tools if key[1].startswith(f"{number}-")}) == 1
    assert len(set(sides.values())) > 1


def test_variations_keep_the_words_of_tools_and_queries() -> None:
    tool = Tool("create_issue", "Create an issue. It needs a title. Labels are optional.", server="tracker")
    texts = {vary_tool_text(tool, random.Random(seed)) for seed in range(60)}
    assert len(texts) > 4
    known = {"tracker", "create", "issue:", *tool.description.split()}
    assert all(set(text.split()) <= known for text in texts)
    query = "file a bug about the login page"
    varied = {vary_query(query, random.Random(seed)) for seed in range(200)}
    assert query in varied
    assert any(query in text and text != query for text in varied)
