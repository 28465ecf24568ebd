"""sessions: a thread whose session cannot be imported at the moment."""

from pathlib import Path

import pytest

from app_server.runtime.loader import LoadFailed
from tests.support.harness import serve


async def test_a_thread_is_left_alone_while_what_runs_threads_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(work: object) -> object:
        raise LoadFailed("OSError: no disk")

    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=False)
        await client.turn(thread_id, "one")
    with monkeypatch.context() as broken:
        broken.setattr("app_server.sessions.loaded.loading.load", fail)
        async with serve(tmp_path) as served, served.client() as client:
            for method, params in (
                ("thread/resume", {"threadId": thread_id}),
                ("thread/fork", {"threadId": thread_id}),
                ("thread/start", {}),
            ):
                refused = await client.refusal(method, params)
                assert (refused.code, refused.data["code"]) == (-32603, "loadFailed")
                assert refused.data["detail"] == "OSError: no disk"
            assert (await client.call("thread/loaded/list", {}))["data"] == []
            broken.undo()
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "two")
            assert served.model.inputs()[-1] == ("user", "two")
