from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames, public_name, safe_name


def test_safe_id_is_the_public_name_and_others_are_made_safe() -> None:
    assert public_name(Tool("send", server="mail")) == "mail___send"
    assert public_name(Tool("send.mail")).startswith("send_mail_")
    long = Tool("x" * 70)
    assert len(public_name(long)) == 64
    names = ToolNames(Catalog([long, Tool("send.mail"), Tool("ok")]))
    assert names.find_tool(public_name(long)) is long
    assert names.find_tool("send.mail") is names.find_tool(public_name(Tool("send.mail")))
    assert names.find_tool("nothing") is None


def test_name_starts_with_a_letter_or_an_underscore() -> None:
    for id in ("3d_render", "-x", "9" * 70):
        name = public_name(Tool(id))
        assert name.startswith(f"_{id[:50]}") and len(name) <= 64
        assert ToolNames(Catalog([Tool(id)])).find_tool(name) == Tool(id)
    assert public_name(Tool("_3d")) == "_3d"


def test_names_can_come_from_another_function() -> None:
    tools = [Tool("3d_render"), Tool("b.c")]
    names = ToolNames(Catalog(tools), lambda tool: tool.id.replace(".", "-"))
    assert [names.name_for(tool) for tool in tools] == ["3d_render", "b-c"]
    assert [names.find_tool(name) for name in ("3d_render", "b-c")] == tools
    assert ToolNames(Catalog(tools)).name_for(tools[0]) == public_name(tools[0])


@given(st.text(min_size=1), st.text(min_size=1))
def test_distinct_names_stay_distinct(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", safe_name(one))
