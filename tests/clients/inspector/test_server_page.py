"""The view of the server in the inspector: dead letters of notifications."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.notifications.receiver import Receiver, rendered, verified

pytestmark = pytest.mark.browser


async def test_dead_letters_are_listed_with_their_receiver_and_thread(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [410]
        config = rendered(**receiver.entry(tmp_path, "turnCompleted", name="the relay"))
        async with inspect(tmp_path, config=config) as inspected:
            await inspected.start_thread()
            await inspected.send_message("hello")
            (request,) = await receiver.wait_for(1)
            thread_id = verified(request)["data"]["threadId"]
            await inspected.go("Server")
            row = inspected.page.get_by_role("row").filter(has_text="the relay")
            await row.wait_for()
            assert "answered 410" in await row.inner_text()
            link = row.get_by_role("link")
            assert await link.get_attribute("href") == f"#/threads/{thread_id}"
