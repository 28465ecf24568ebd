"""notifications: webhooks of what threads wait for and how they end, over real sockets."""

from pathlib import Path

from tests.support.harness import serve
from tests.support.webhook_receiver import Receiver, verified


async def test_the_end_of_a_turn_is_sent_signed(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        config = receiver.settings(tmp_path, "turnCompleted", "turnFailed")
        config = f'notification_link = "http://127.0.0.1:1/"\n{config}'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread(cwd=str(tmp_path))
            turn = await client.turn(thread_id, "hello")
            (request,) = await receiver.wait_for(1)
    body = verified(request)
    assert (request.method, request.target) == ("POST", "/hook")
    assert body.pop("timestamp").endswith("Z")
    assert body == {
        "type": "turnCompleted",
        "data": {
            "id": request.headers["webhook-id"],
            "threadId": thread_id,
            "threadName": None,
            "cwd": str(tmp_path),
            "link": f"http://127.0.0.1:1/#/threads/{thread_id}",
            "turnId": turn["id"],
            "status": "completed",
        },
    }
