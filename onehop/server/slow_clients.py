"""HTTP for clients that are slow on purpose: who sends no whole head in time, or reads no answer, is hung up on."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class PunctualProtocol(H11Protocol):
    """uvicorn's own, which waits for ever for a head that has begun and for an answer to be taken."""

    head_seconds = 10.0  # both are set before the first connection
    taking_seconds = 60.0

    _deadline: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The first head is awaited."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.head_seconds, self._hang_up)

    def data_received(self, data: bytes) -> None:
        """Some of a head or a body; once a request is there, the application keeps the time."""
        super().data_received(data)
        if self._busy() and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not self._busy() and self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._hang_up)

    def pause_writing(self) -> None:
        """The client takes less than it is sent; an answer that nobody takes would stay in memory for ever."""
        super().pause_writing()
        self._untaken = self.loop.call_later(self.taking_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._forget_untaken()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
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
