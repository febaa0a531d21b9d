"""The reference page lists every setting."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toolcrib.config import llm_models, parser, server_entry
from toolcrib.config.clients import file_writes
from toolcrib.config.fields import SettingField, list_settings
from toolcrib.config.parser import FOREIGN_KEYS, KNOWN_KEYS
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import (
    AccessProfile,
    AuditConfig,
    CodeModeConfig,
    EmbeddingConfig,
    GatewayConfig,
    HttpConfig,
    LlmGatewayConfig,
    LlmUpstreamConfig,
    ResultsConfig,
    SafetyConfig,
    ToolOverride,
    ToolSearchConfig,
)

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
_TABLE = re.compile(r"^<!-- settings: (\w+) -->\n\n((?:\|.*\n)+)", re.MULTILINE)
_PARTS = {
    part.__name__: part
    for part in (
        GatewayConfig,
        ServerConfig,
        ToolSearchConfig,
        AccessProfile,
        LlmUpstreamConfig,
        LlmGatewayConfig,
        SafetyConfig,
        HttpConfig,
        EmbeddingConfig,
        AuditConfig,
        ResultsConfig,
        CodeModeConfig,
        ToolOverride,
    )
}


def _render_default(value: object) -> str:
    """Return a default in the format of the page: JSON with commas in large numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{int(value):,}" if value == int(value) else str(value)
    return json.dumps(value)


def _row(one: SettingField) -> str:
    return f"| `{one.key}` | `{_render_default(one.default)}` | {one.accepted_values} | {one.description} |\n"


def _table(part: type) -> str:
    head = "| key | default | value | meaning |\n|---|---|---|---|\n"
    return head + "".join(_row(one) for one in list_settings(part))


def _text() -> str:
    return _PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", _PARTS)
def test_reference_page_lists_every_setting(name: str) -> None:
    tables = dict(_TABLE.findall(_text()))
    assert set(tables) == set(_PARTS)
    assert tables[name] == _table(_PARTS[name])


def test_reference_page_names_every_key() -> None:
    for key in (*KNOWN_KEYS, *FOREIGN_KEYS):
        assert f"`{key}`" in _text(), key


def test_reference_page_names_every_limit() -> None:
    for limit in (
        parser.MAX_SERVERS,
        parser.MAX_PROFILES,
        parser.MAX_KEYS,
        llm_models.MAX_UPSTREAMS,
        parser.MAX_OVERRIDES,
        parser.MIN_KEY_CHARS,
        server_entry.MAX_NAME_CHARS,
        file_writes.MAX_BACKUPS,
    ):
        assert f" {limit:,} " in _text(), limit
