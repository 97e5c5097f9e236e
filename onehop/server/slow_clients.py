"""HTTP for clients that are slow, numerous or hostile.

A client that sends no complete header in time, or does not read its response, is disconnected. Malformed HTTP gets a
JSON error, and is logged.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol


class TimeoutProtocol(H11Protocol):
    """uvicorn's protocol with timeouts: uvicorn waits forever for a header to end and for a response to be read."""

    header_seconds = 10.0  # these are set before the first connection
    response_seconds = 60.0
    most_connections = 1000
    malformed: Callable[[int, str | None], None] = staticmethod(lambda status, address: None)  # called for bad HTTP

    _header_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._app, self.app = self.app, self._flag_overload

    async def _flag_overload(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Refused by the application instead of uvicorn, so that the response is JSON and is logged.
        scope["state"]["overloaded"] = max(len(self.connections), len(self.tasks)) > self.most_connections
        await self._app(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP; uvicorn calls this while it handles the error."""
        error = sys.exc_info()[1]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # a response that has begun cannot be replaced
            status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
            what = "The request's header is too long: send a shorter one." if status == 431 else f"{msg[:-1]}: {error}."
            body = json.dumps({"error": what}).encode()
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
            ]
            answer = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            parts = (answer, h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
            self.malformed(status, self.client[0] if self.client else None)
        self.transport.close()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(self.header_seconds, self._disconnect)

    def data_received(self, data: bytes) -> None:
        """Receive part of a header or body. After the header, the application enforces the time limit."""
        super().data_received(data)
        if self._is_answering() and self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        elif not self._is_answering() and self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self._disconnect)

    def pause_writing(self) -> None:
        """Called if the client reads slowly. A response that is never read would stay in memory."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.response_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_unread_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
        self._cancel_unread_timer()
        super().connection_lost(exc)

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _disconnect(self) -> None:
        self._header_timer = None
        if not self._is_answering() and not self.transport.is_closing():
            self.transport.close()
