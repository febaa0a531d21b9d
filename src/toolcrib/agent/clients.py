"""Recognize the official client objects, without importing their packages."""

from __future__ import annotations

from typing import Any

from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.gemini import Gemini
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.agent.provider import Provider
from toolcrib.errors import InvalidConfig


def provider_from_client(client: Any, model: str, for_async: bool) -> Provider:
    """Return the provider of a client of `anthropic`, `openai` or `google-genai`.

    A client of `openai` gets the Chat Completions API, which compatible servers have too.
    """
    package = type(client).__module__.partition(".")[0]
    is_provider = hasattr(client, "new_reply")
    if not is_provider and package not in ("anthropic", "openai", "google"):
        raise InvalidConfig(
            f"an agent needs a client of anthropic, openai or google-genai, or a provider such as "
            f"OpenAIChat(client, model), not {type(client).__name__}"
        )
    if is_provider and model:
        raise InvalidConfig("the provider has a model already; leave out `model`")
    if is_provider:
        provider: Provider = client
        return provider
    if not model or not isinstance(model, str):
        raise InvalidConfig('a client needs a model; write Agent(client, session, model="…")')
    if package == "anthropic":
        return Anthropic(client, model)
    if package == "openai":
        return OpenAIChat(client, model)
    return Gemini(getattr(client, "aio", client) if for_async else client, model)
