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


class PunctualProtocol(H11Protocol):
    """uvicorn's protocol with timeouts: uvicorn waits forever for a header to end and for a response to be read."""

    head_seconds = 10.0  # these are set before the first connection
    taking_seconds = 60.0
    most_connections = 1000
    malformed: Callable[[int, str | None], None] = staticmethod(lambda status, address: None)  # called on refusal

    _deadline: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._answering, self.app = self.app, self._told_of_the_crowd

    async def _told_of_the_crowd(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Refused by the application instead of uvicorn, so that the response is JSON and is logged.
        scope["state"]["crowded"] = max(len(self.connections), len(self.tasks)) > self.most_connections
        await self._answering(scope, receive, send)

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
        self._deadline = self.loop.call_later(self.head_seconds, self._hang_up)

    def data_received(self, data: bytes) -> None:
        """Receive part of a header or body. After the header, the application enforces the time limit."""
        super().data_received(data)
        if self._busy() and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not self._busy() and self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._hang_up)

    def pause_writing(self) -> None:
        """The client reads more slowly than we send; a response that is never read would stay in memory."""
        super().pause_writing()
        self._untaken = self.loop.call_later(self.taking_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget_untaken()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._forget_untaken()
        super().connection_lost(exc)

    def _forget_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _hang_up(self) -> None:
        self._deadline = None
        if not self._busy() and not self.transport.is_closing():
            self.transport.close()
