"""A thread is deleted at one node while another one loads, forks, or delivers to it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WireClient
from tests.support.threads.nodes import running_nodes

pytestmark = pytest.mark.postgresql

ROUNDS = 6

Other = Callable[[str], tuple[str, dict[str, Any]]]


def _loads(thread_id: str) -> tuple[str, dict[str, Any]]:
    return "thread/resume", {"threadId": thread_id}


def _forks(thread_id: str) -> tuple[str, dict[str, Any]]:
    return "thread/fork", {"threadId": thread_id}


def _delivers(thread_id: str) -> tuple[str, dict[str, Any]]:
    signal = {
        "id": thread_id,
        "source": "router",
        "type": "Question",
        "sender": "ann",
        "summary": "?",
    }
    target = {"threadId": thread_id}
    return "signal/deliver", {"signal": signal, "target": target, "mode": "passive"}


async def answered(client: WireClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = await client.answer(await client.request(method, params))
    return message


@pytest.mark.parametrize("other", [_loads, _forks, _delivers])
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_one_of_both_orders_is_seen_and_no_ghost_is_left(
    tmp_path: Path, database_url: str, other: Other, is_loaded: bool
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        async with first.client() as here, second.client() as there:
            for number in range(ROUNDS):
                thread_id = await here.start_thread()
                await here.turn(thread_id, "hi")
                if not is_loaded:
                    unloading = {"threadId": thread_id, "unload": True}
                    await here.call("thread/unsubscribe", unloading)
                deleting = there if number % 2 else here
                asking = here if number % 2 else there
                deleted, done = await asyncio.gather(
                    answered(deleting, "thread/delete", {"threadId": thread_id}),
                    answered(asking, *other(thread_id)),
                )
                if "error" in deleted:
                    # It lost against a load of the other node, which has the thread now.
                    assert deleted["error"]["data"]["code"] == "threadBusy"
                    await deleting.call("thread/delete", {"threadId": thread_id})
                if "error" in done:
                    assert done["error"]["data"]["code"] in (
                        "threadNotFound",
                        "noRecipient",
                        "threadBusy",
                        "signalRecipientNotFound",
                    ), done
                for client in (here, there):
                    listed = (await client.call("thread/list", {}))["data"]
                    assert thread_id not in [row["id"] for row in listed]
                    gone = await client.refusal("thread/read", {"threadId": thread_id})
                    assert gone.data["code"] == "threadNotFound"
