"""mcp: the choice of a revision at the beginning of a conversation, over streams in memory."""

from typing import Any

import anyio
import pytest

from app_server.mcp_wire import handshake as handshakes
from app_server.mcp_wire.errors import EndedByQuestion, PeerError, RequestTimedOut
from app_server.mcp_wire.handshake import Handshake
from app_server.mcp_wire.revisions import Revision, WrongRevision
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.conversation import Conversation, conversing

WHO = {"name": "n", "version": "1"}
NEW = "2026-07-28"
OLD = "2025-06-18"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": WHO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
DISCOVER = ("server/discover", {"_meta": ENVELOPE})
INITIALIZE = (
    "initialize",
    {"protocolVersion": OLD, "capabilities": {}, "clientInfo": WHO},
)
FOUND: Any = {
    "resultType": "complete",
    "supportedVersions": [NEW],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}},
}
HELLO = {"protocolVersion": OLD}


def unsupported(*versions: str) -> Any:
    data = {"supported": list(versions), "requested": NEW}
    return {"error": {"code": -32022, "message": "no", "data": data}}


def stands_for(status: int) -> Any:
    return {"error": {"code": -32000, "message": "HTTP", "data": {"status": status}}}


def error(code: int) -> Any:
    return {"error": {"code": code, "message": "no"}}


async def agreed(
    talk: Conversation, handshake: Handshake, script: list[tuple[Any, Any]]
) -> tuple[str, Any]:
    """Answer the requests of a handshake as the script says; gives the version and the outcome."""
    outcomes: list[Any] = []

    async def run() -> None:
        try:
            outcomes.append(await handshake.run(WAIT_S))
        except PeerError as exc:
            outcomes.append((exc.code, exc.message))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for asked, answer in script:
            request = await talk.next()
            assert (request["method"], request["params"]) == asked
            if answer is not None:
                await talk.send(id=request["id"], **answer)
            if asked is INITIALIZE and "result" in answer:
                assert await talk.next() == {"method": "notifications/initialized"}
    await talk.client.notify("next")
    assert await talk.next() == {"method": "next"}
    return handshake.revision.version, outcomes[0]


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ([(DISCOVER, {"result": FOUND})], NEW),
        ([(DISCOVER, error(-32601)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, error(-32602)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, error(-32000)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, stands_for(400)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, stands_for(405)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, stands_for(500)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, {"result": {}}), (INITIALIZE, {"result": HELLO})], OLD),
        (
            [
                (DISCOVER, {"result": {**FOUND, "supportedVersions": [OLD]}}),
                (INITIALIZE, {"result": HELLO}),
            ],
            OLD,
        ),
        ([(DISCOVER, unsupported(OLD)), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, unsupported()), (INITIALIZE, {"result": HELLO})], OLD),
        ([(DISCOVER, unsupported(NEW)), (DISCOVER, {"result": FOUND})], NEW),
        (
            [
                (DISCOVER, error(-32601)),
                (INITIALIZE, unsupported(NEW)),
                (DISCOVER, {"result": FOUND}),
            ],
            NEW,
        ),
    ],
)
async def test_the_newest_revision_that_both_have_is_agreed_on(
    script: list[tuple[Any, Any]], version: str
) -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", None, WAIT_S)
        found, hello = await agreed(talk, handshake, script)
    assert found == version
    if version == NEW:
        assert hello["serverInfo"] == {"name": "s", "version": "2"}
        assert (hello["protocolVersion"], hello["capabilities"]) == (NEW, {"tools": {}})
    else:
        assert hello == HELLO


@pytest.mark.parametrize(
    ("protocol", "known", "script", "code"),
    [
        *(
            ("auto", None, [(DISCOVER, stands_for(status))], -32000)
            for status in (401, 403, 429, 502, 503)
        ),
        ("auto", None, [(DISCOVER, error(-32020))], -32020),
        ("auto", None, [(DISCOVER, error(-32021))], -32021),
        ("auto", None, [(DISCOVER, unsupported("2031-01-01"))], -32022),
        ("auto", None, [(DISCOVER, unsupported(NEW)), (DISCOVER, unsupported(NEW))], -32022),
        ("auto", None, [(DISCOVER, error(-32601)), (INITIALIZE, error(-32001))], -32001),
        ("auto", OLD, [(INITIALIZE, error(-32001)), (DISCOVER, error(-32601))], -32001),
        ("auto", OLD, [(INITIALIZE, stands_for(503))], -32000),
        ("2025", None, [(INITIALIZE, unsupported(NEW))], -32022),
        (NEW, None, [(DISCOVER, error(-32601))], -32601),
        (NEW, None, [(DISCOVER, {"result": {"supportedVersions": [OLD]}})], -32603),
    ],
)
async def test_a_refusal_ends_it_and_nothing_more_is_sent(
    protocol: str, known: str | None, script: list[tuple[Any, Any]], code: int
) -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, protocol, known, WAIT_S)
        _, outcome = await agreed(talk, handshake, script)
    assert outcome[0] == code


async def test_what_worked_before_is_asked_for_first_until_it_is_forgotten() -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", "2025-03-26", WAIT_S)
        old = [(INITIALIZE, {"result": HELLO})]
        assert (await agreed(talk, handshake, old))[0] == OLD
        changed = [(INITIALIZE, unsupported(NEW)), (DISCOVER, {"result": FOUND})]
        assert (await agreed(talk, handshake, changed))[0] == NEW
        again = [(DISCOVER, error(-32601)), (INITIALIZE, {"result": HELLO})]
        assert (await agreed(talk, handshake, again))[0] == OLD
        handshake.forget()
        assert (await agreed(talk, handshake, [(DISCOVER, {"result": FOUND})]))[0] == NEW


@pytest.mark.parametrize("refusal", [error(-32601), error(-32602), stands_for(400)])
async def test_a_server_that_takes_no_handshake_any_more_is_asked_whatever_it_says(
    refusal: Any,
) -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", OLD, WAIT_S)
        script = [(INITIALIZE, refusal), (DISCOVER, {"result": FOUND})]
        assert (await agreed(talk, handshake, script))[0] == NEW


async def test_a_server_that_says_nothing_is_sent_a_handshake_as_well() -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", None, 0.01)
        script = [(DISCOVER, None), (INITIALIZE, {"result": HELLO})]
        assert await agreed(talk, handshake, script) == (OLD, HELLO)


@pytest.mark.parametrize("code", [-32600, -32000, -32603])
async def test_a_slow_server_that_takes_no_handshake_any_more_is_asked_once_more(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "AGAIN_PART", 1)
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", None, 0.01)
        script = [(DISCOVER, None), (INITIALIZE, error(code)), (DISCOVER, {"result": FOUND})]
        assert (await agreed(talk, handshake, script))[0] == NEW


@pytest.mark.parametrize("answer", [error(-32601), error(-32022), {"result": {}}, None])
async def test_a_silent_server_fails_with_its_refusal_of_the_handshake(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setattr(handshakes, "AGAIN_PART", 100_000)
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", None, 0.01)
        script = [(DISCOVER, None), (INITIALIZE, error(-32001)), (DISCOVER, answer)]
        assert (await agreed(talk, handshake, script))[1] == (-32001, "no")


@pytest.mark.parametrize("answer", [stands_for(401), stands_for(503), error(-32020)])
async def test_a_silent_server_is_not_asked_again_after_what_decides_nothing(answer: Any) -> None:
    async with conversing() as talk:
        handshake = Handshake(talk.client, WHO, {}, "auto", None, 0.01)
        script = [(DISCOVER, None), (INITIALIZE, answer)]
        code = answer["error"]["code"]
        assert (await agreed(talk, handshake, script))[1][0] == code


async def test_a_server_that_ends_at_the_question_may_be_an_old_one() -> None:
    async with conversing() as talk:
        with pytest.raises(EndedByQuestion):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_after_one, talk)
                try:
                    await Handshake(talk.client, WHO, {}, "auto", None, WAIT_S).run(WAIT_S)
                except EndedByQuestion as exc:
                    ended = exc
            raise ended


async def _end_after_one(talk: Conversation) -> None:
    await talk.next()
    await talk.to_us.aclose()


@pytest.mark.parametrize(
    ("answered", "version"),
    [
        ({"protocolVersion": "2025-06-18"}, "2025-06-18"),
        ({"protocolVersion": "2025-03-26"}, "2025-03-26"),
        ({"protocolVersion": "2024-11-05"}, "2024-11-05"),
        ({"protocolVersion": "2099-01-01"}, "2025-06-18"),
        ({"protocolVersion": ["2025-03-26"]}, "2025-06-18"),
        ({}, "2025-06-18"),
    ],
)
async def test_a_handshake_agrees_on_a_version(answered: Any, version: str) -> None:
    async with conversing() as talk, anyio.create_task_group() as tasks:
        handshake = Handshake(talk.client, WHO, {"elicitation": {}})
        hellos: list[Any] = []

        async def run() -> None:
            hellos.append(await handshake.run(WAIT_S))

        tasks.start_soon(run)
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"elicitation": {}},
            "clientInfo": WHO,
        }
        assert await talk.next() == {"id": 1, "method": "initialize", "params": params}
        await talk.send(id=1, result=answered)
        with anyio.fail_after(WAIT_S):
            sent = await talk.from_us.receive()
        assert sent.message.method == "notifications/initialized"  # type: ignore[union-attr]
        assert sent.headers == {"mcp-protocol-version": version}
    assert hellos == [answered]
    assert handshake.headers == {"mcp-protocol-version": version}


async def test_a_handshake_without_an_answer_is_not_cancelled() -> None:
    async with conversing() as talk:
        with pytest.raises(RequestTimedOut):
            await Handshake(talk.client, WHO, {}).run(0.01)
        assert (await talk.next())["method"] == "initialize"
        await talk.client.notify("next")
        assert await talk.next() == {"method": "next"}


def test_a_result_is_read_as_its_revision_has_it() -> None:
    new, old = Revision(NEW, ENVELOPE), Revision(OLD)
    stamped = {"io.modelcontextprotocol/serverInfo": WHO}
    whole = {"resultType": "complete", "content": [], "_meta": {**stamped, "m": 1}}
    assert new.result("tools/call", whole) == {"content": [], "_meta": {"m": 1}}
    assert new.result("tools/list", {"tools": [], "_meta": stamped}) == {"tools": []}
    assert old.result("tools/call", whole) == whole
    asks = {"resultType": "input_required", "inputRequests": {}}
    assert new.result("tools/call", asks) == asks
    for revision, method, kind in (
        (old, "tools/call", "input_required"),
        (new, "tools/list", "input_required"),
        (new, "tools/call", "other"),
        (new, "tools/call", None),
    ):
        with pytest.raises(WrongRevision):
            revision.result(method, {"resultType": kind})
