"""Refuse requests that pages of other origins send to a local server. Any page in the user's browser could send them.

The rules are those of Go's http.CrossOriginProtection: browsers state the origin of a request in Sec-Fetch-Site or
Origin, and a page cannot change either. Programs send neither and are accepted.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

REFUSED = "A page of another origin may not call this server: start it with --cors ORIGIN to allow one."


class CrossOriginGuard:
    """An ASGI application that answers 403 to pages of other origins, except the allowed ones; "*" allows any.

    Links to one of the `pages` are allowed from everywhere.
    """

    def __init__(self, app: ASGIApp, *, origins: Collection[str] = (), pages: Collection[str] = ("/",)) -> None:
        self.app, self.origins, self.pages = app, origins, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.is_foreign(scope["method"], scope["path"], Headers(scope=scope)):
            await JSONResponse({"error": REFUSED}, 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def is_foreign(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from a page that may not send it."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if "*" in self.origins or origin in self.origins or site in ("same-origin", "none"):
            return False
        if site is None:  # a program, an old browser, or a page without TLS
            return origin is not None and urlsplit(origin).netloc != headers.get("host")
        follows_link = method == "GET" and headers.get("sec-fetch-dest") == "document" and path in self.pages
        return not follows_link
