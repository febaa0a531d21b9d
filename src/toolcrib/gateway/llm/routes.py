"""The paths of the model gateway."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolcrib.config.settings import LlmApi
from toolcrib.gateway.llm import openapi
from toolcrib.gateway.llm.anthropic import endpoint as messages
from toolcrib.gateway.llm.api_errors import render_messages_error, render_openai_error
from toolcrib.gateway.llm.endpoint import LlmEndpoint
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.models import MODELS_PATH, handle_models
from toolcrib.gateway.llm.openai_chat.endpoint import create_completion
from toolcrib.gateway.llm.openai_responses.endpoint import ResponsesEndpoint


def build_llm_routes(gateway: LlmGateway) -> list[Route]:
    """The routes of every API that has an upstream; `gateway` has to be open while they are used."""
    most = gateway.max_body_bytes
    responses = ResponsesEndpoint(gateway)
    posts = {
        "/v1/messages": LlmEndpoint(
            partial(messages.create_message, gateway), render_messages_error, most
        ),
        "/v1/messages/count_tokens": LlmEndpoint(
            partial(messages.count_tokens, gateway), render_messages_error, most
        ),
        "/v1/chat/completions": LlmEndpoint(
            partial(create_completion, gateway), render_openai_error, most
        ),
        "/v1/responses": LlmEndpoint(responses.create_response, render_openai_error, most),
    }
    stored = LlmEndpoint(responses.handle_stored, render_openai_error, most)
    shape = render_messages_error if _first_api(gateway) == "messages" else render_openai_error
    listing = LlmEndpoint(partial(handle_models, gateway), shape, most)
    return [
        *(Route(path, door, methods=["POST"]) for path, door in posts.items()),
        Route("/v1/responses/{rest:path}", stored, methods=["GET", "POST", "DELETE"]),
        Route(openapi.PATH, _serve_openapi, methods=["GET"]),
        Route(MODELS_PATH, listing, methods=["GET"]),
        Route(f"{MODELS_PATH}/{{model:path}}", listing, methods=["GET"]),
    ]


async def _serve_openapi(request: Request) -> JSONResponse:
    return JSONResponse(openapi.description())


def _first_api(gateway: LlmGateway) -> LlmApi:
    return gateway.settings.upstreams[0].api if gateway.settings.upstreams else "messages"
