"""The page at `/`: ask the model something, and watch its tokens come. Files, as they are."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
# Nothing from elsewhere, and no script but those files: whatever a model writes stays text.
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def playground_routes() -> list[Route]:
    """The page, and the files that it loads; they need no key, unlike what the page asks for."""
    folder = files("structspec.server.playground") / "assets"
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    page = contents.pop("page.html")
    return [
        _route("/", "page.html", page),
        *(_route(f"/playground/{name}", name, data) for name, data in contents.items()),
    ]


def _route(path: str, name: str, data: bytes) -> Route:
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]

    async def answer(request: Request) -> Response:
        return Response(data, media_type=media_type, headers=_HEADERS)

    return Route(path, answer)
