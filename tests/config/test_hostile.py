"""Any file gives a configuration or an `InvalidConfig`, never another exception."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config.checks import check_config, find_unset_variables
from toolcrib.config.clients.locations import CLIENTS, ClientFile, HostSystem
from toolcrib.config.clients.translation import translate_entry
from toolcrib.config.fields import list_settings
from toolcrib.config.jsonc import parse_jsonc
from toolcrib.config.parser import FOREIGN_KEYS, KNOWN_KEYS, parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import ToolSearchConfig
from toolcrib.errors import InvalidConfig

_WORDS = st.sampled_from(
    [
        *(one.key for one in list_settings(ServerConfig)),
        *(one.key for one in list_settings(ToolSearchConfig)),
        *("disabled", "timeout", "httpUrl", "authorizationToken", "keys", "hash", "middleware"),
        *("proxy", "tool_search", "config", "ref", "threshold", "never_defer", "corsOrigins"),
        *("env_vars", "http_headers", "env_http_headers", "bearer_token_env_var", "name"),
        *("${A}", "${A:-b}", "${", "$${A}", "${input:x}", "${workspaceFolder}", "$A"),
        *("https://example.com", "http://[", "stdio", "sse", "a\nb", "\ud800", "x" * 300, ""),
    ]
)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 10**9) | st.floats() | _WORDS
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4), max_leaves=12
)
_ENTRIES = st.dictionaries(_WORDS, _VALUES, max_size=5)
_DOCUMENTS = st.dictionaries(
    st.sampled_from([*KNOWN_KEYS, *FOREIGN_KEYS]), _VALUES | st.dictionaries(_WORDS, _ENTRIES), max_size=4
)


@given(_DOCUMENTS)
def test_any_document_is_parsed_or_rejected(document: Any) -> None:
    find_unset_variables(document, {})
    with contextlib.suppress(InvalidConfig):
        check_config(parse_config(document, {"A": "1"}), lambda program, path: None, bool)


@given(_ENTRIES | _VALUES, st.sampled_from(list(CLIENTS)), st.sampled_from(["user", "project"]))
def test_any_client_entry_is_translated_or_rejected(entry: Any, client: str, scope: Any) -> None:
    machine = HostSystem("linux", Path("/home/me"), {"A": "1"}, Path("/work"))
    found = translate_entry(ClientFile(client, Path("x"), ("y",), scope), "one", entry, machine)
    if not found.error:
        parse_config({"mcpServers": {"one": found.entry}}, {})


@given(st.text(alphabet='{}[]",:/*\\ 1ae\n') | _DOCUMENTS.map(lambda one: json.dumps(one)))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        parse_jsonc("f", text)
