"""Bodies that are read as a whole have a bound, which counts to the byte."""

from collections.abc import AsyncIterator

import pytest

from app_server.runtime.http.bounded_body import TooManyBytes, read_beginning, read_bounded


class Body:
    """Pieces, and how many of them were taken."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.taken += 1
            yield piece


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [((), b""), ((b"",), b""), ((b"abcd",), b"abcd"), ((b"ab", b"", b"cd"), b"abcd")],
)
async def test_a_body_within_its_bound_is_returned(
    pieces: tuple[bytes, ...], expected: bytes
) -> None:
    assert await read_bounded(Body(*pieces), 4) == expected
    assert await read_beginning(Body(*pieces), 4) == expected


async def test_a_byte_more_is_an_error_and_nothing_more_is_read() -> None:
    body = Body(b"abcd", b"e", b"f")
    with pytest.raises(TooManyBytes, match=r"^larger than 4 bytes$"):
        await read_bounded(body, 4)
    assert body.taken == 2
    with pytest.raises(TooManyBytes):
        await read_bounded(Body(b"a"), 0)


async def test_the_error_is_the_callers_own() -> None:
    error = LookupError("the file store said too much")
    with pytest.raises(LookupError) as caught:
        await read_bounded(Body(b"abcde"), 4, error)
    assert caught.value is error


async def test_of_a_long_body_only_the_beginning_is_read() -> None:
    body = Body(b"abc", b"def", b"g")
    assert await read_beginning(body, 4) == b"abcd"
    assert body.taken == 2
