"""The paths of the model gateway."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolcrib.config.settings import Api
from toolcrib.gateway.llm import openapi
from toolcrib.gateway.llm.anthropic import endpoint as messages
from toolcrib.gateway.llm.api_errors import messages_error, openai_error
from toolcrib.gateway.llm.endpoint import Door
from toolcrib.gateway.llm.gateway import Gateway
from toolcrib.gateway.llm.models import PATH, models
from toolcrib.gateway.llm.openai_chat.endpoint import Completions
from toolcrib.gateway.llm.openai_responses.endpoint import Responses


def routes(gateway: Gateway) -> list[Route]:
    """The routes of every API that has an upstream; `gateway` has to be open while they are used."""
    most = gateway.max_body_bytes
    responses = Responses(gateway)
    posts = {
        "/v1/messages": Door(partial(messages.create, gateway), messages_error, most),
        "/v1/messages/count_tokens": Door(partial(messages.count, gateway), messages_error, most),
        "/v1/chat/completions": Door(Completions(gateway).create, openai_error, most),
        "/v1/responses": Door(responses.create, openai_error, most),
    }
    stored = Door(responses.others, openai_error, most)
    shape = messages_error if _first_api(gateway) == "messages" else openai_error
    listing = Door(partial(models, gateway), shape, most)
    return [
        *(Route(path, door, methods=["POST"]) for path, door in posts.items()),
        Route("/v1/responses/{rest:path}", stored, methods=["GET", "POST", "DELETE"]),
        Route(openapi.PATH, _described, methods=["GET"]),
        Route(PATH, listing, methods=["GET"]),
        Route(f"{PATH}/{{model:path}}", listing, methods=["GET"]),
    ]


async def _described(request: Request) -> JSONResponse:
    return JSONResponse(openapi.description())


def _first_api(gateway: Gateway) -> Api:
    return gateway.settings.upstreams[0].api if gateway.settings.upstreams else "messages"
