"""Apps: responses of a hosted endpoint that are too long, or do not come."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from app_server.apps.upstream import hosted_session
from app_server.apps.upstream.hosted_session import (
    MAX_RESPONSE_BYTES,
)
from app_server.clients.demo.hosted.endpoint import text_result
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import PARSE_ERROR
from tests.support.apps.hosted import connector
from tests.support.apps.hosted_stage import done, stage
from tests.support.harness import claim


def test_a_response_may_have_sixteen_mebibytes() -> None:
    assert MAX_RESPONSE_BYTES == 16 * 1024 * 1024


@claim("apps:t-10")
@pytest.mark.parametrize("above", [0, 1], ids=["at-the-limit", "above"])
async def test_a_response_of_the_limit_is_read_and_one_byte_more_fails_its_request_alone(
    above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 4096
    monkeypatch.setattr(hosted_session, "MAX_RESPONSE_BYTES", limit)
    answer = {"jsonrpc": "2.0", "id": 2, "result": {"text": ""}}
    text = "x" * (limit - len(to_json(answer)) + above)
    body = to_json({**answer, "result": {"text": text}})
    assert len(body) == limit + above
    async with stage([connector(("look", done))]) as on:
        on.hosted.script.answers["tools/call"] = [
            Response(body, media_type="application/json"),
        ]
        if above:
            with pytest.raises(PeerError) as caught:
                await on.call("test_look")
            assert caught.value.code == PARSE_ERROR
            assert "larger than 4096 bytes" in caught.value.message
        else:
            assert await on.call("test_look") == {"text": text}
        assert await on.call("test_look") == text_result("done")
        assert on.pool.counters.opened == 1


@claim("apps:t-10")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_response_without_end_is_cut_off(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_session, "MAX_RESPONSE_BYTES", 100_000)
    left = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b": nothing\n\n" * 100
                await anyio.lowlevel.checkpoint()
        finally:
            left.set()

    async with stage([connector(("look", done))]) as on:
        on.hosted.script.answers["tools/call"] = [StreamingResponse(endless(), media_type=kind)]
        with pytest.raises(PeerError):
            await on.call("test_look")
        await left.wait()
        assert await on.call("test_look") == text_result("done")


async def test_an_endpoint_that_does_not_shake_hands_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert hosted_session.INTRODUCTION_S == 30
    monkeypatch.setattr(hosted_session, "INTRODUCTION_S", 0.05)
    async with stage() as on:
        on.hosted.script.holds["initialize"] = anyio.Event()
        with pytest.raises(PeerError) as caught:
            await on.call("calendar_list_events")
        on.hosted.script.holds.pop("initialize").set()
        monkeypatch.undo()
        assert caught.value.message == "timed out awaiting initialize after 0.05s"
        assert not (await on.call("calendar_list_events"))["isError"]
