"""log: which request, thread and turn the lines of a server are about."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app_server.observability.log_context import add_ids, ids_of
from tests.support.harness import claim, serve
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import calls, says


class Kept(logging.Handler):
    """Keeps messages with the ids that a line of them would have."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.addFilter(add_ids)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), ids_of(record)))


@pytest.fixture
def kept(caplog: pytest.LogCaptureFixture) -> Iterator[Kept]:
    ours = logging.getLogger("app_server")
    caplog.set_level(logging.INFO, ours.name)
    caplog.set_level(logging.DEBUG, f"{ours.name}.mcp")
    handler = Kept()
    ours.addHandler(handler)
    yield handler
    ours.removeHandler(handler)


@claim("log:ids")
async def test_everything_about_a_turn_has_its_ids_and_those_of_its_request(
    tmp_path: Path, kept: Kept
) -> None:
    async with WebPeer().serve() as peer:
        config = f'[mcp_servers.web]\nurl = "{peer.url}"\ndefault_tools_approval_mode = "approve"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            look = {"namespace": "mcp__web", "name": "look", "arguments": {}}
            served.model.scripts += [calls(look), says("done")]
            turn = await client.turn(thread_id, "go")
            await client.refusal("thread/read", {"threadId": "x" * 8})
    of_turn = [(text, ids) for text, ids in kept.lines if ids.get("turnId") == turn["id"]]
    assert of_turn[-1][0] == "turn completed"
    assert any(text.startswith("call server='web'") for text, _ in of_turn)
    of_request = {**of_turn[0][1], "method": "turn/start", "threadId": thread_id}
    assert [ids for _, ids in of_turn] == [of_request] * len(of_turn)
    answered = {
        ids["method"]: (text, ids) for text, ids in kept.lines if text.startswith("answered")
    }
    assert answered["thread/read"][0].endswith(" ms: invalidThreadId")
    assert answered["turn/start"][1] == {
        name: of_request[name] for name in ("connectionId", "requestId", "method", "threadId")
    }
    assert "threadId" not in answered["initialize"][1]
