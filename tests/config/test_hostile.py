"""Whatever a file holds, the answer is a configuration or an error of ours, never another."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config.checks import check, check_variables
from toolcrib.config.clients.locations import CLIENTS, Machine, Place
from toolcrib.config.clients.translation import translated
from toolcrib.config.jsonc import parsed
from toolcrib.config.kind import settings_of
from toolcrib.config.reading import FOREIGN_KEYS, KEYS, read
from toolcrib.config.settings import Server, ToolSearch
from toolcrib.errors import InvalidConfig

_WORDS = st.sampled_from(
    [
        *(one.setting.key for one in settings_of(Server)),
        *(one.setting.key for one in settings_of(ToolSearch)),
        *("disabled", "timeout", "httpUrl", "authorizationToken", "keys", "hash", "middleware"),
        *("proxy", "tool_search", "config", "ref", "threshold", "never_defer", "corsOrigins"),
        *("env_vars", "http_headers", "env_http_headers", "bearer_token_env_var", "name"),
        *("${A}", "${A:-b}", "${", "$${A}", "${input:x}", "${workspaceFolder}", "$A"),
        *("https://example.com", "http://[", "stdio", "sse", "a\nb", "\ud800", "x" * 300, ""),
    ]
)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 10**9) | st.floats() | _WORDS
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)
_ENTRIES = st.dictionaries(_WORDS, _VALUES, max_size=5)
_DOCUMENTS = st.dictionaries(
    st.sampled_from([*KEYS, *FOREIGN_KEYS]), _VALUES | st.dictionaries(_WORDS, _ENTRIES), max_size=4
)


@given(_DOCUMENTS, st.booleans())
def test_any_document_is_read_or_refused(document: Any, tolerant: bool) -> None:
    check_variables(document, {})
    with contextlib.suppress(InvalidConfig):
        check(read(document, {"A": "1"}, tolerant=tolerant), lambda program, path: None, bool)


@given(_ENTRIES | _VALUES, st.sampled_from(list(CLIENTS)), st.sampled_from(["user", "project"]))
def test_any_entry_of_a_client_is_translated_or_refused(
    entry: Any, client: str, scope: Any
) -> None:
    machine = Machine("linux", Path("/home/me"), {"A": "1"}, Path("/work"))
    found = translated(Place(client, Path("x"), ("y",), scope), "one", entry, machine)
    if not found.fault:
        read({"mcpServers": {"one": found.entry}}, {}, tolerant=True)


@given(st.text(alphabet='{}[]",:/*\\ 1ae\n') | _DOCUMENTS.map(lambda one: json.dumps(one)))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        parsed("f", text, InvalidConfig)
