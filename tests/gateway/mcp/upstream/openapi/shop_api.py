"""A shop as an HTTP API, and OpenAPI documents for it."""

from __future__ import annotations

import base64
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
RESOURCES = [
    *("customer", "order", "invoice", "refund", "product", "warehouse", "shipment", "coupon", "review", "supplier"),
    *("employee", "shift", "contract", "ticket", "message", "campaign", "segment", "report", "webhook", "key"),
    *("tax", "currency", "price", "category", "brand", "return", "payment", "payout", "dispute", "address"),
    *("account", "role", "team", "project", "task", "comment", "file", "folder", "event", "alert"),
    *("meter", "plan", "subscription", "trial", "quote", "lead", "deal", "note", "tag", "audit"),
]


def build_document(base_url: str = "", **changes: Any) -> dict[str, Any]:
    """Return the document of the shop."""
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {"title": "Shop API", "version": "2.1"},
        "servers": [{"url": base_url or "http://shop.invalid/v1"}],
        "paths": {
            "/items/{itemId}": {
                "parameters": [{"$ref": "#/components/parameters/ItemId"}],
                "get": {
                    "operationId": "getItem",
                    "summary": "Get an item",
                    "description": "Returns one item with its stock.",
                    "parameters": [
                        {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                    ],
                },
                "put": {
                    "operationId": "replaceItem",
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
                    },
                },
                "delete": {"operationId": "deleteItem", "summary": "Delete an item", "deprecated": True},
            },
            "/items": {
                "get": {
                    "summary": "List items",
                    "parameters": [
                        {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                        {
                            "name": "ids",
                            "in": "query",
                            "explode": False,
                            "schema": {"type": "array", "items": {"type": "integer"}},
                        },
                        {"name": "api_key", "in": "query", "required": True, "schema": {"type": "string"}},
                    ],
                },
                "post": {
                    "operationId": "create item!",
                    "requestBody": {
                        "content": {
                            "application/x-www-form-urlencoded": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"name": {"type": "string"}, "tags": {"type": "array"}},
                                }
                            }
                        }
                    },
                },
            },
            **{f"/{name}": {"get": {"operationId": name}} for name in ("image", "broken", "huge", "away", "moved")},
            **{
                f"/{name}": {"get": {"operationId": name}}
                for name in ("limited", "nothing", "latin", "bytes", "locked")
            },
            "/upload": {
                "post": {
                    "operationId": "upload",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "multipart/form-data": {
                                "schema": {"type": "object", "properties": {"file": {"type": "string"}}}
                            }
                        },
                    },
                }
            },
        },
        "components": {
            "parameters": {"ItemId": {"name": "itemId", "in": "path", "required": True, "schema": {"type": "string"}}},
            "schemas": {
                "Item": {
                    "type": "object",
                    "required": ["id", "name"],
                    "properties": {
                        "id": {"type": "string", "readOnly": True},
                        "name": {"type": "string", "example": "Lamp"},
                        "price": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
                        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                    },
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return {**document, **changes}


def build_large_document() -> dict[str, Any]:
    """Return a document with 250 operations, as many as those of real services have."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Money": {"type": "object", "properties": {"amount": {"type": "integer"}}}}
    for number, name in enumerate(RESOURCES):
        other = RESOURCES[(number + 1) % len(RESOURCES)]
        schemas[name] = {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "description": f"The name of the {name}."},
                "total": {"$ref": "#/components/schemas/Money"},
                other: {"$ref": f"#/components/schemas/{other}"},
            },
        }
        body = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}, "required": True}
        key = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        paths[f"/{name}s"] = {
            "get": {"operationId": f"list_{name}s", "summary": f"List {name}s, page by page."},
            "post": {"operationId": f"create_{name}", "summary": f"Create a {name}.", "requestBody": body},
        }
        paths[f"/{name}s/{{id}}"] = {
            "parameters": key,
            "get": {"operationId": f"get_{name}", "summary": f"Get a {name}."},
            "patch": {"operationId": f"update_{name}", "summary": f"Change a {name}.", "requestBody": body},
            "delete": {"operationId": f"delete_{name}", "summary": f"Delete a {name}."},
        }
    return {"openapi": "3.1.0", "info": {"title": "ERP"}, "paths": paths, "components": {"schemas": schemas}}


async def _echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.url.query,
            "headers": {
                name: request.headers.get(name) for name in ("authorization", "x-trace", "x-key", "content-type")
            },
            "body": body.decode(),
        }
    )


async def _fail(request: Request) -> Response:
    return JSONResponse({"error": "no stock", "code": 17}, 409)


async def _huge(request: Request) -> Response:
    return PlainTextResponse("x" * 2_000_000)


async def _redirect(request: Request) -> Response:
    is_away = request.url.path.endswith("away")
    return RedirectResponse("http://elsewhere.invalid/steal" if is_away else "/v1/items/7")


async def _limit(request: Request) -> Response:
    return PlainTextResponse("slow down", 429, {"Retry-After": "30"})


async def _answer(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    if name == "image":
        return Response(PIXEL, media_type="image/png")
    if name == "nothing":
        return Response(status_code=204)
    if name == "latin":
        return Response("é".encode("latin-1"), media_type="text/plain; charset=latin-1")
    return Response(b"\0\xff\xfe", media_type="application/zip")


async def _reject(request: Request) -> Response:
    return PlainTextResponse("who are you?", 401)


class TokenIssuer:
    """Issues access tokens `token-1`, `token-2` and so on, and remembers the requests."""

    def __init__(self, *, reads_header: bool = True, seconds: object = 600) -> None:
        self.reads_header = reads_header
        self.seconds = seconds
        self.forms: list[dict[str, str]] = []
        self.accepted: set[str] = set()

    async def issue(self, request: Request) -> Response:
        """Issue a token for the client `shop client` with the secret `s:1`."""
        form = {key: str(value) for key, value in (await request.form()).items()}
        in_header = request.headers.get("authorization") == "Basic c2hvcCUyMGNsaWVudDpzJTNBMQ=="
        in_body = (form.get("client_id"), form.get("client_secret")) == ("shop client", "s:1")
        if not (in_header if self.reads_header else in_body):
            return JSONResponse({"error": "invalid_client"}, 401)
        self.forms.append(form)
        token = f"token-{len(self.forms)}"
        self.accepted.add(f"Bearer {token}")
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": self.seconds})

    async def answer(self, request: Request) -> Response:
        """Answer a request of the API if its token is accepted."""
        given = request.headers.get("authorization", "")
        if given not in self.accepted:
            return PlainTextResponse("who are you?", 401)
        return JSONResponse({"id": 1, "token": given})

    def build_app(self) -> Starlette:
        """Return an application with the token endpoint and the API."""
        return Starlette(routes=[Route("/token", self.issue, methods=["POST"]), Route("/v1/items/{id}", self.answer)])


def build_app(document: dict[str, Any] | None = None) -> Starlette:
    """Return the shop as an application; it serves its document at `/openapi.json`."""
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes = [
        Route("/v1/items", _echo, methods=methods),
        Route("/v1/items/{id:path}", _echo, methods=methods),
        Route("/v1/upload", _echo, methods=methods),
        Route("/v1/broken", _fail),
        Route("/v1/huge", _huge),
        Route("/v1/away", _redirect),
        Route("/v1/moved", _redirect),
        Route("/v1/limited", _limit),
        Route("/v1/locked", _reject),
        *(Route(f"/v1/{name}", _answer) for name in ("image", "nothing", "latin", "bytes")),
    ]

    async def serve_document(request: Request) -> Response:
        return JSONResponse(document)

    return Starlette(routes=[*routes, Route("/openapi.json", serve_document)])
