"""OpenAI's official client, the gateway and a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from tests.gateway.llm.serving import running_llm_gateway
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway


class OpenAiSetup:
    """A scripted model, a gateway and a client."""

    def __init__(self, model: ScriptedModel, url: str) -> None:
        self.model = model
        self.url = url
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)

    @property
    def requests(self) -> list[Request]:
        """The requests that the model received."""
        return self.model.requests


@contextmanager
def openai_setup(script: Script, upstream: dict[str, Any] | None = None, **settings: Any) -> Iterator[OpenAiSetup]:
    """Run a scripted model behind a gateway with these settings; found tools are revealed by default."""
    with ScriptedModel(script) as model:
        one = LlmUpstreamConfig("scripted", api="openai", url=model.url, **{"style": "reveal", **(upstream or {})})
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,), **settings))) as served:
            made = OpenAiSetup(model, served.url)
            with made.client:
                yield made


WORDS = (
    ("get_exchange_rate", "Look up the exchange rate of two currencies", "currency"),
    ("send_email", "Send an electronic letter to somebody", "recipient"),
    ("book_flight", "Reserve a seat on an airplane", "destination"),
    ("resize_image", "Make a picture larger or smaller", "width"),
    ("play_song", "Play music by its title", "title"),
    ("water_plants", "Water the plants in the garden", "minutes"),
)


def parameters(field: str) -> dict[str, Any]:
    """Return the schema of a tool with one field."""
    return {
        "type": "object",
        "properties": {field: {"type": "string", "description": f"The {field}"}},
        "required": [field],
        "additionalProperties": False,
    }


def functions(**more: Any) -> list[dict[str, Any]]:
    """Return six tools in the format of the Responses API."""
    return [
        {
            "type": "function",
            "name": name,
            "description": about,
            "parameters": parameters(field),
            "strict": True,
            **more,
        }
        for name, about, field in WORDS
    ]


def chat_functions(**more: Any) -> list[dict[str, Any]]:
    """Return the same tools in the format of Chat Completions."""
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": parameters(field)}, **more}
        for name, about, field in WORDS
    ]
