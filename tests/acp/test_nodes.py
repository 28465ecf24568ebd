"""A session at a node that owns none of its threads: its requests are passed on as all are."""

from pathlib import Path

import pytest

from tests.support.clients.acp import acp_socket, prompt
from tests.support.model import says
from tests.support.threads.nodes import running_nodes

pytestmark = pytest.mark.postgresql


async def test_a_session_of_another_node_goes_on_for_both(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts += [says("Begun."), says("Gone on.")]
        async with owner.client() as codex:
            thread_id = await codex.start_thread(cwd=str(tmp_path))
            await codex.turn(thread_id, "Begin.")
            async with acp_socket(other.urls[0]) as (editor, agent):
                place = {"cwd": str(tmp_path), "mcp_servers": []}
                await agent.load_session(session_id=thread_id, **place)
                assert (editor.text("user_message_chunk"), editor.text()) == ("Begin.", "Begun.")
                await agent.prompt(session_id=thread_id, prompt=prompt("Go on."))
                assert editor.text() == "Begun.Gone on."
                seen = await codex.until("turn/completed")
                ended = [each for each in seen if each["method"] == "item/completed"]
                assert ended[-1]["params"]["item"]["text"] == "Gone on."
