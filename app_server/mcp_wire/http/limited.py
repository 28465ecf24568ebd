"""A bound on whole responses, whatever is in them: a stream of events has none by itself."""

from collections.abc import Mapping

from app_server.mcp_wire.http.exchange import BodyTooLarge, HttpRequest, HttpResponse, HttpSender


class LimitedSender:
    """Cuts off responses to POST requests that pass a bound; a HttpSender."""

    def __init__(self, inner: HttpSender, limit_bytes: int) -> None:
        """Take the bound, in bytes of the body, inclusive."""
        self._inner = inner
        self._limit = limit_bytes

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request; see HttpSender."""
        response = await self._inner.send(request)
        return LimitedResponse(response, self._limit) if request.method == "POST" else response


class LimitedResponse:
    """A HttpResponse that is counted while it is read."""

    def __init__(self, inner: HttpResponse, limit_bytes: int) -> None:
        """Take the bound; a response that says that it is longer is not read at all."""
        self.status = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self._inner = inner
        self._limit = limit_bytes
        self._left = -1 if _is_above(inner.headers, limit_bytes) else limit_bytes

    @property
    def at_end(self) -> bool:
        """Whether no more of the body comes; see HttpResponse."""
        return self._inner.at_end

    async def receive(self) -> bytes:
        """Return the next piece of the body; see HttpResponse.

        Raises:
            BodyTooLarge: the bound is passed.
        """
        piece = b"" if self._left < 0 else await self._inner.receive()
        self._left -= len(piece)
        if self._left < 0:
            raise BodyTooLarge(f"the response is larger than {self._limit} bytes")
        return piece

    async def aclose(self) -> None:
        """Give the connection back; see HttpResponse."""
        await self._inner.aclose()


def _is_above(headers: Mapping[str, str], limit_bytes: int) -> bool:
    length = headers.get("content-length", "")
    return length.isascii() and length.isdecimal() and int(length[:20]) > limit_bytes
