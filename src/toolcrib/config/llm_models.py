"""Read the section `models`: the upstreams of the LLM gateway and the aliases of their models."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.config.fields import ConfigSection, InvalidSetting, unknown_name
from toolcrib.config.server_entry import check_url
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig, ModelTarget
from toolcrib.files.json_file import JsonPath

MAX_UPSTREAMS: Final = 100
MAX_ALIASES: Final = 1_000
MAX_FALLBACKS: Final = 10

_DEFAULT_APIS: Final = {"anthropic": "messages", "openai": "openai", "gemini": "gemini"}
_DEFAULT_URLS: Final = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_ALIAS_EXAMPLE: Final = 'write "upstream/model", or a list of these'


def read_llm_gateway(root: ConfigSection) -> LlmGatewayConfig:
    """Return the settings of the LLM gateway, with its upstreams and aliases."""
    section = root.child("models")
    entries = {name: value for name, value in section.members.items() if not isinstance(value, str | list)}
    if len(entries) > MAX_UPSTREAMS:
        raise InvalidSetting(section.path, f"at most {MAX_UPSTREAMS:,} models are allowed")
    upstreams = tuple(_read_upstream(name, section.child(name)) for name in entries)
    names = [upstream.name for upstream in upstreams]
    aliases = {
        name: _read_alias(section, name, names) for name, value in section.members.items() if name not in entries
    }
    if len(aliases) > MAX_ALIASES:
        raise InvalidSetting(section.path, f"at most {MAX_ALIASES:,} aliases are allowed")
    settings = root.child("modelGateway").read_settings(LlmGatewayConfig)
    return LlmGatewayConfig(upstreams, aliases, **settings)


@lru_cache(maxsize=256)
def is_azure_host(url: str) -> bool:
    """Return whether a URL is one of Azure OpenAI, which has its own paths and key header."""
    host = urlsplit(url).hostname or ""
    return host.endswith((".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"))


def _read_upstream(name: str, section: ConfigSection) -> LlmUpstreamConfig:
    settings = section.read_settings(LlmUpstreamConfig)
    if name in _DEFAULT_APIS and settings.setdefault("api", _DEFAULT_APIS[name]) == _DEFAULT_APIS[name]:
        settings.setdefault("url", _DEFAULT_URLS[name])
    example = _DEFAULT_URLS["anthropic" if settings.get("api", "messages") == "messages" else "openai"]
    check_url(settings.get("url", ""), (*section.path, "url"), example)
    # OpenAI's own programs expect `/v1` at the end of the URL, Anthropic's do not.
    settings["url"] = settings["url"].rstrip("/").removesuffix("/v1")
    if is_azure_host(settings["url"]) and settings.get("api") == "openai":
        settings["url"] = settings["url"].removesuffix("/openai")
    if settings.get("key") and settings.get("keys"):
        raise InvalidSetting((*section.path, "keys"), 'repeats "key"; keep one of the two')
    if any(not key.strip() for key in settings.get("keys", ())):
        raise InvalidSetting((*section.path, "keys"), "one of the keys is empty; set its variable, or remove it")
    return LlmUpstreamConfig(name, **settings)


def _read_alias(section: ConfigSection, name: str, upstreams: Iterable[str]) -> tuple[ModelTarget, ...]:
    path: JsonPath = (*section.path, name)
    value: Any = section.members[name]
    texts = value if isinstance(value, list) else [value]
    if not texts or len(texts) > MAX_FALLBACKS:
        raise InvalidSetting(path, f"must name 1 to {MAX_FALLBACKS} models; {_ALIAS_EXAMPLE}")
    targets = []
    for number, text in enumerate(texts):
        place = (*path, number) if isinstance(value, list) else path
        upstream, slash, model = section.read_string(text, place).partition("/")
        if not (upstream and slash and model):
            raise InvalidSetting(place, f"is not an upstream (an object) or an alias; for an alias, {_ALIAS_EXAMPLE}")
        if upstream not in upstreams:
            raise unknown_name(place, "upstream", upstream, upstreams)
        targets.append(ModelTarget(upstream, model))
    return tuple(targets)
