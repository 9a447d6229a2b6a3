"""The server: OpenAI's endpoints over one engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from structspec.prometheus import CONTENT_TYPE, to_prometheus
from structspec.server import chat_endpoint, completions, responses_endpoint, tokens
from structspec.server.bodies import (
    ChatBody,
    CompletionBody,
    ResponsesBody,
    SamplingFields,
    read_body,
)
from structspec.server.chat import prepare_chat
from structspec.server.chat_body import Head
from structspec.server.choosing import choose, read_choices
from structspec.server.errors import ApiError, to_api_error
from structspec.server.gate import Gate, cancelled_with_client
from structspec.server.playground import playground_routes
from structspec.server.responses import prepare_response
from structspec.server.settings import ServerSettings
from structspec.server.store import ResponseStore
from structspec.server.streamed_answer import StreamedAnswer
from structspec.service import Service

logger = logging.getLogger("structspec")

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, settings: ServerSettings) -> Starlette:
    """The application; `service` stays the caller's to close."""
    server = _Server(service, settings)
    routes = [
        Route("/v1/chat/completions", server.guarded(server.chat), methods=["POST"]),
        Route("/v1/completions", server.guarded(server.completions), methods=["POST"]),
        Route("/v1/responses", server.guarded(server.responses), methods=["POST"]),
        Route("/v1/responses/{response_id}", server.guarded(server.response), methods=["GET"]),
        Route("/v1/responses/{response_id}", server.guarded(server.forget), methods=["DELETE"]),
        Route("/v1/choose", server.guarded(server.choose), methods=["POST"]),
        Route("/v1/models", server.guarded(server.models)),
        Route("/v1/models/{model:path}", server.guarded(server.model)),
        Route("/tokenize", server.guarded(server.tokenize), methods=["POST"]),
        Route("/detokenize", server.guarded(server.detokenize), methods=["POST"]),
        *playground_routes(),
        Route("/health", server.health),
        Route("/ready", server.ready),
        Route("/metrics", server.metrics),
    ]
    return Starlette(
        routes=routes,
        middleware=_browsers(settings.allowed_origins),
        exception_handlers={HTTPException: _not_served, Exception: _failed},
    )


def _browsers(origins: Sequence[str]) -> list[Middleware]:
    """What lets pages of these origins ask and read answers, if there are any."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after"),
        )
    ]


class _Server:
    """The endpoints; used by one event loop."""

    def __init__(self, service: Service, settings: ServerSettings) -> None:
        self._service = service
        self._settings = settings
        self._started = int(time.time())
        self._gate = Gate(settings)
        self._store = ResponseStore(settings.max_stored_responses)

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint that asks for keys, and answers in OpenAI's words whatever goes wrong."""

        async def answer(request: Request) -> Response:
            request_id = request.headers.get("x-request-id") or f"req_{secrets.token_hex(12)}"
            try:
                self._gate.check_key(request)
                response = await endpoint(request)
            except ApiError as error:
                response = error.response()
            except Exception as error:
                told = to_api_error(error)
                if told.status >= 500:
                    logger.exception("request %s failed", request_id)
                response = told.response()
            response.headers["x-request-id"] = request_id
            return response

        return answer

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        data = await self._gate.read(request)
        body = read_body(ChatBody, data)
        head = Head(self._settings.model_name)
        return await self._generate(
            request,
            body,
            len(data),
            partial(prepare_chat, self._service, self._settings, body),
            partial(chat_endpoint.complete_chat, self._service, head=head),
            partial(
                chat_endpoint.stream_chat, self._service, head=head, has_usage=_wants_usage(body)
            ),
        )

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        data = await self._gate.read(request)
        body = read_body(CompletionBody, data)
        head = completions.make_head(self._settings.model_name)
        return await self._generate(
            request,
            body,
            len(data),
            partial(completions.prepare_completion, self._service, self._settings, body),
            partial(completions.complete_text, self._service, head=head),
            partial(
                completions.stream_text, self._service, head=head, has_usage=_wants_usage(body)
            ),
        )

    async def responses(self, request: Request) -> Response:
        """POST /v1/responses."""
        data = await self._gate.read(request)
        body = read_body(ResponsesBody, data)
        where = self._service, self._store, self._settings.model_name
        return await self._generate(
            request,
            body,
            len(data),
            partial(prepare_response, self._service, self._settings, self._store, body),
            partial(responses_endpoint.respond, *where),
            partial(responses_endpoint.stream_response, *where),
        )

    async def choose(self, request: Request) -> Response:
        """POST /v1/choose."""
        data = await self._gate.read(request)
        body = read_choices(data)
        with self._gate.holding(len(data)), self._gate.entered(len(body.choices)):
            async with cancelled_with_client(request.receive):
                return JSONResponse(await choose(self._service, self._settings, body))

    async def response(self, request: Request) -> Response:
        """GET /v1/responses/ID."""
        response_id = request.path_params["response_id"]
        return JSONResponse(self._store.get(response_id, "response_id").body)

    async def forget(self, request: Request) -> Response:
        """DELETE /v1/responses/ID."""
        response_id = request.path_params["response_id"]
        self._store.delete(response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    async def _generate(
        self,
        request: Request,
        body: SamplingFields,
        num_bytes: int,
        prepare: Callable[[], Any],
        complete: Callable[..., Awaitable[dict[str, Any]]],
        stream: Callable[..., AsyncGenerator[bytes]],
    ) -> Response:
        """Prepare beside the event loop, then answer whole or in pieces."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._gate.holding(num_bytes))
            stack.enter_context(self._gate.entered(1))
            job = await asyncio.to_thread(prepare)
            stack.enter_context(self._gate.entered(job.num_choices - 1))
            if not body.stream:
                async with cancelled_with_client(request.receive):
                    return JSONResponse(await complete(job=job))
            pieces = stream(job=job)
            async with cancelled_with_client(request.receive):
                # what fails before anything is said is an answer of its own
                first = await anext(pieces)
            return StreamedAnswer(first, pieces, stack.pop_all())

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        name = request.path_params["model"]
        if name != self._settings.model_name:
            raise ApiError(
                404, f"the model {name!r} does not exist", param="model", code="model_not_found"
            )
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {
            "id": self._settings.model_name,
            "object": "model",
            "created": self._started,
            "owned_by": "structspec",
            "root": self._settings.model_name,
            "max_model_len": self._service.max_model_len,
        }

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        data = await self._gate.read(request)
        return JSONResponse(await asyncio.to_thread(tokens.tokenize, self._service, data))

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        data = await self._gate.read(request)
        return JSONResponse(await asyncio.to_thread(tokens.detokenize, self._service, data))

    async def health(self, request: Request) -> Response:
        """GET /health: whether the engine's thread lives."""
        is_alive = self._service.is_alive
        return PlainTextResponse("", 200 if is_alive else 503)

    async def ready(self, request: Request) -> Response:
        """GET /ready: whether new requests are taken."""
        is_draining = getattr(request.app.state, "is_draining", False)
        is_ready = self._service.is_alive and not is_draining
        return PlainTextResponse("", 200 if is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, as Prometheus reads it."""
        labels = {"model_name": self._settings.model_name}
        text = to_prometheus(self._service.metrics(), labels)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)


def _wants_usage(body: SamplingFields) -> bool:
    return bool((body.stream_options or {}).get("include_usage"))


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = f"{request.method} {request.url.path}: {error.detail}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return ApiError(error.status_code, told, code=code, headers=error.headers).response()


async def _failed(request: Request, error: Exception) -> Response:
    return to_api_error(error).response()
