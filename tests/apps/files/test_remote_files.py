"""Files of other machines as the apps may read them."""

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app_server.apps.files.environments import EnvironmentFiles
from app_server.apps.files.files import FileRefused
from app_server.host.environments import Environments
from protocol.model import Json
from tests.support.apps.demo_apps import DEMO, thread_with_apps
from tests.support.apps.files.local import entry as rule
from tests.support.apps.files.local import managed, state, whole
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.host.elsewhere import add, entry, machines, put
from tests.support.host.exec_conversations import listening
from tests.support.model import calls, says

THERE = "there"


def put_there(environments: Environments, url: str) -> str:
    """Add an environment; gives its instance."""
    put(environments, THERE, url)
    instance_id = environments.instance_of(THERE)
    assert instance_id is not None
    return instance_id


async def read(environments: Environments, instance_id: str, path: Path, **members: Any) -> bytes:
    """Read a file there as a call does; it is as large as its metadata say."""
    given = state(environmentId=THERE, environmentInstanceId=instance_id, **members)
    async with EnvironmentFiles(environments).pin(given) as files:
        metadata = await files.metadata(str(path))
        content = b"".join(await whole(files, str(path)))
    assert (metadata.is_file, metadata.size) == (True, len(content))
    return content


@claim("environment:app-files")
async def test_a_file_of_another_machine_is_read(tmp_path: Path) -> None:
    content = os.urandom(2_500_000)
    (tmp_path / "a").write_bytes(content)
    async with listening() as url, machines() as environments:
        instance_id = put_there(environments, url)
        assert await read(environments, instance_id, tmp_path / "a") == content


@claim("environment:app-files")
@pytest.mark.parametrize(
    ("name", "profile", "reason"),
    [
        ("none", managed(rule()), "No such file or directory"),
        (".", managed(rule()), "it is not a file"),
        ("home/auth.json", managed(rule()), "not allowed by the sandbox"),
        ("a", managed(rule("write", "project_roots")), None),
        ("../b", managed(rule("write", "project_roots")), "not allowed by the sandbox"),
        ("link", managed(rule("write", "project_roots")), "not allowed by the sandbox"),
        ("a", {"type": "managed"}, "not allowed by the sandbox"),
        ("a", {"type": "other"}, "not allowed by the sandbox"),
        ("home/auth.json", {"type": "disabled"}, None),
    ],
)
async def test_the_profile_and_the_machine_say_what_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    profile: Json,
    reason: str | None,
) -> None:
    work = tmp_path / "work"
    (work / "home").mkdir(parents=True)
    monkeypatch.setenv("APP_SERVER_HOME", f"{work}/home")
    for path in (work / "a", work / "home/auth.json", tmp_path / "b"):
        path.write_text("text")
    (work / "link").symlink_to("../b")
    async with listening() as url, machines() as environments:
        instance_id = put_there(environments, url)
        members: dict[str, Any] = {"permissionProfile": profile, "sandboxCwd": work.as_uri()}
        reading = partial(read, environments, instance_id, work / name, **members)
        if reason is None:
            assert await reading() == b"text"
            return
        with pytest.raises(FileRefused) as refused:
            await reading()
        assert str(refused.value) == reason


@claim("environment:app-files")
async def test_an_environment_that_was_replaced_or_is_away_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    async with machines() as environments:
        async with listening() as url:
            first = put_there(environments, url)
            second = put_there(environments, url)
            with pytest.raises(FileRefused, match="not the one of this turn any more"):
                await read(environments, first, tmp_path / "a")
            assert await read(environments, second, tmp_path / "a") == b"text"
            given = state(environmentId=THERE, environmentInstanceId=second)
            async with EnvironmentFiles(environments).pin(given) as files:
                put_there(environments, url)
                with pytest.raises(FileRefused, match="the environment was replaced"):
                    await files.metadata(str(tmp_path / "a"))
            third = environments.instance_of(THERE)
        assert third is not None
        with pytest.raises(FileRefused):
            await read(environments, third, tmp_path / "a")


async def saved(served: Served, client: WireClient, **turn: Any) -> Any:
    """Run a turn whose model puts `notes.txt` into an app; gives the item of the call."""
    thread_id = await thread_with_apps(client)
    save = {
        "namespace": "mcp__codex_apps__drive",
        "name": "_save_file",
        "arguments": {"file": "notes.txt"},
    }
    served.model.scripts += [calls(save), says("done")]
    await client.call(
        "turn/start",
        {
            "threadId": thread_id,
            "input": [{"type": "text", "text": "go"}],
            "approvalPolicy": "never",
            "sandboxPolicy": {"type": "dangerFullAccess"},
            **turn,
        },
    )
    message = await client.wait_for("item/completed", lambda p: p["item"]["type"] == "mcpToolCall")
    await client.until("turn/completed")
    return message["params"]["item"]


@claim("environment:app-files")
async def test_a_file_of_the_first_environment_goes_into_an_app(tmp_path: Path) -> None:
    far, content = tmp_path / "far", b"Dear diary"
    far.mkdir()
    (far / "notes.txt").write_bytes(content)
    async with (
        listening() as url,
        serve(tmp_path / "home", config=DEMO, with_apps=True) as served,
        served.client() as client,
    ):
        await add(client, url)
        item = await saved(served, client, environments=[entry(far)])
        digest = hashlib.sha256(content).hexdigest()
        file = {"name": "notes.txt", "bytes": len(content), "sha256": digest}
        assert item["result"]["structuredContent"] == {"file": file}


@claim("environment:app-files")
async def test_no_file_goes_into_an_app_from_a_thread_without_an_environment(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # The working folder of the thread.
    (home / "notes.txt").write_text("Dear diary")
    async with (
        serve(home, config=DEMO, with_apps=True) as served,
        served.client() as client,
    ):
        item = await saved(served, client, environments=[])
        assert item["status"] == "failed"
        assert item["error"]["message"].endswith(
            "upload of `notes.txt` for `file` failed: the environment of the turn is not known"
        )
