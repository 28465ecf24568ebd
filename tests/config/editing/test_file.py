"""config.toml as something the server writes: lasting approvals, nothing else touched."""

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.config.editing.file import ConfigFile
from app_server.config.editing.toml_edit import NotEditable, set_value
from app_server.config.values import NotRecorded
from tests.support.harness import Served, WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import answer_question, raw_call, steps_until_settled, with_peer
from tests.support.model import calls

PATH = ("mcp_servers", "a", "tools", "t", "approval_mode")
ADDED = '\n[mcp_servers.a.tools.t]\napproval_mode = "approve"\n'


@pytest.mark.parametrize(
    "text",
    [
        '# top\n[mcp_servers.a] # here\ncommand = "x" # run\n# of a\n\n# of z\n[z]\nq = 1\n',
        '[mcp_servers.a]\ncommand = "x"\n[z]\n[mcp_servers.b]\ncommand = "y"\n',
        '[mcp_servers.a.env]\nA = "1"\n[mcp_servers.a]\ncommand = "x"\n',
        '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.tools.u]\napproval_mode = "auto"\n',
        '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.tools]\nu = {}\n',
        'mcp_servers.a.command = "x"\n[z]\n',
        '[mcp_servers.a]\ncommand = "x"\n[[k]]\nq = """\n[mcp_servers.a.tools.t]\n"""\n',
    ],
)
def test_a_table_that_is_missing_is_put_at_the_end(text: str) -> None:
    assert set_value(text, PATH, "approve") == text + ADDED


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ('[mcp_servers.a]\ncommand = "x"', '[mcp_servers.a]\ncommand = "x"\n' + ADDED),
        (
            '[mcp_servers.a]\r\ncommand = "x"\r\n',
            '[mcp_servers.a]\r\ncommand = "x"\r\n' + ADDED.replace("\n", "\r\n"),
        ),
        ("", ADDED.lstrip()),
        (
            "[mcp_servers.a.tools.t] # t\noutput_token_limit = 5 # five\n\n# z\n[z]\n",
            "[mcp_servers.a.tools.t] # t\noutput_token_limit = 5 # five\n"
            'approval_mode = "approve"\n\n# z\n[z]\n',
        ),
        (
            '[mcp_servers.a.tools.t]\napproval_mode = "auto" # asks\n',
            '[mcp_servers.a.tools.t]\napproval_mode = "approve" # asks\n',
        ),
        (
            '[mcp_servers.a]\ntools.t.approval_mode = "auto" # asks\n[z]\n',
            '[mcp_servers.a]\ntools.t.approval_mode = "approve" # asks\n[z]\n',
        ),
        (
            '[mcp_servers] # all\na = { command = "x" } # a\nb = { command = "y" }\n',
            '[mcp_servers] # all\na = { command = "x", '
            'tools = {t = {approval_mode = "approve"}}} # a\nb = { command = "y" }\n',
        ),
    ],
)
def test_what_is_there_is_changed_in_its_place(text: str, edited: str) -> None:
    assert set_value(text, PATH, "approve") == edited


@pytest.mark.parametrize("name", ["", "a.b", 'say "hi"', "ünï", "tab\t", "line\nfeed", "\x7f", "'"])
def test_any_name_can_be_written(name: str) -> None:
    edited = set_value("[mcp_servers.a]\n", ("mcp_servers", "a", "tools", name), "v")
    assert tomllib.loads(edited) == {"mcp_servers": {"a": {"tools": {name: "v"}}}}


def test_what_cannot_be_changed_alone_is_left() -> None:
    with pytest.raises(NotEditable) as caught:
        set_value("[mcp_servers.a]\ntools = 5\n", PATH, "approve")
    assert str(caught.value) == "`tools` of `mcp_servers.a.tools.t.approval_mode` is not a table"
    # A value that equals nothing, not even itself, hides what else has changed.
    with pytest.raises(NotEditable) as caught:
        set_value("x = nan\n", PATH, "approve")
    assert str(caught.value) == (
        "cannot set `mcp_servers.a.tools.t.approval_mode` in the form that it has"
    )


async def test_a_form_that_cannot_be_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[mcp_servers.a]\ntools = 5\n")
    with pytest.raises(NotRecorded) as caught:
        await ConfigFile(tmp_path).approve("a", "t")
    assert str(caught.value) == (
        f"{file}: `tools` of `mcp_servers.a.tools.t.approval_mode` is not a table"
    )


async def test_mode_and_links_stay_as_they_are(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mine.toml"
    real.parent.mkdir()
    real.write_text("[mcp_servers.a]\n")
    real.chmod(0o640)
    (tmp_path / "config.toml").symlink_to(real)
    await ConfigFile(tmp_path).approve("a", "t")
    assert (tmp_path / "config.toml").is_symlink()
    assert real.read_text() == "[mcp_servers.a]\n" + ADDED
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [path.name for path in real.parent.iterdir()] == ["mine.toml"]


async def test_an_approval_is_written_into_the_profile_that_defines_the_server(
    tmp_path: Path,
) -> None:
    base, profile = tmp_path / "config.toml", tmp_path / "work.config.toml"
    base.write_text("[mcp_servers.a]\n")
    profile.write_text("[mcp_servers.b]\n")
    file = ConfigFile(tmp_path, over=profile)
    await file.approve("a", "t")
    await file.approve("b", "t")
    await file.approve("nowhere", "t")
    assert base.read_text() == "[mcp_servers.a]\n" + ADDED
    assert profile.read_text() == "[mcp_servers.b]\n" + ADDED.replace("s.a.", "s.b.")
    profile.write_text("[broken\n")
    with pytest.raises(NotRecorded):
        await file.approve("a", "t")


async def test_a_disk_that_refuses_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[mcp_servers.a]\n")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(NotRecorded) as caught:
        await ConfigFile(tmp_path).approve("a", "t")
    assert str(caught.value) == f"{file}: No space left on device"
    assert file.read_text() == "[mcp_servers.a]\n"
    assert list(tmp_path.iterdir()) == [file]


async def test_a_concurrent_write_of_another_process_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[mcp_servers.a]\n")
    monkeypatch.setattr("os.fsync", lambda descriptor: file.write_text("theirs = true\n"))
    with pytest.raises(NotRecorded) as caught:
        await ConfigFile(tmp_path).approve("a", "t")
    assert str(caught.value) == f"{file}: it has been changed by somebody else meanwhile"
    assert file.read_text() == "theirs = true\n"
    assert list(tmp_path.iterdir()) == [file]


async def ask(served: Served, client: WireClient, thread_id: str, persist: str) -> list[Any]:
    """Run a turn with a call that asks, accept it, and return all messages of the turn."""
    served.model.scripts.append(calls(raw_call("wipe")))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    await client.call("turn/start", params)
    await answer_question(client, {"result": {"action": "accept", "_meta": {"persist": persist}}})
    messages = await client.until("turn/completed")
    (item,) = [
        message["params"]["item"]
        for message in messages
        if message.get("method") == "item/completed"
        and message["params"]["item"]["type"] == "mcpToolCall"
    ]
    assert item["status"] == "completed"
    return messages


async def runs_unasked(served: Served, client: WireClient, thread_id: str) -> bool:
    served.model.scripts.append(calls(raw_call("wipe")))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    await client.call("turn/start", params)
    message = await client.receive()
    while message.get("method") not in ("mcpServer/elicitation/request", "turn/completed"):
        message = await client.receive()
    if message["method"] == "turn/completed":
        return True
    await client.send({"id": message["id"], "result": {"action": "decline"}})
    await client.wait_for("turn/completed")
    return False


@claim("approval:always")
async def test_an_approval_that_lasts_is_written_where_the_server_is(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        file = tmp_path / "config.toml"
        before = file.read_text()
        other = await client.start_thread()
        await steps_until_settled(client, "raw")
        messages = await ask(served, client, thread_id, "always")
        assert "warning" not in [message.get("method") for message in messages]
        assert file.read_text() == (
            before + '\n[mcp_servers.raw.tools.wipe]\napproval_mode = "approve"\n'
        )
        # This thread remembers, new ones read it, and others have it with their next request.
        assert await runs_unasked(served, client, thread_id)
        new = await client.start_thread()
        await steps_until_settled(client, "raw")
        assert await runs_unasked(served, client, new)
        assert await runs_unasked(served, client, other)


@claim("approval:always-unwritten")
async def test_an_approval_that_cannot_be_written_holds_for_the_session(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        file = tmp_path / "config.toml"
        file.write_text("[broken\n")
        messages = await ask(served, client, thread_id, "always")
        (warning,) = [m["params"] for m in messages if m.get("method") == "warning"]
        assert warning == {
            "threadId": thread_id,
            "message": "the approval of raw/wipe holds for this session only, as it cannot be "
            f"written down: {file}:1:8: Expected ']' at the end of a table declaration",
        }
        assert file.read_text() == "[broken\n"
        assert await runs_unasked(served, client, thread_id)


@claim("approval:always-override")
async def test_a_server_that_the_file_does_not_have_is_remembered_for_the_session(
    tmp_path: Path,
) -> None:
    table = tomllib.loads(stdio_server("raw"))["mcp_servers"]
    async with serve(tmp_path) as served, served.client() as client:
        before = (tmp_path / "config.toml").read_text()
        thread_id = await client.start_thread(config={"mcp_servers": table})
        await steps_until_settled(client, "raw")
        messages = await ask(served, client, thread_id, "always")
        assert "warning" not in [message.get("method") for message in messages]
        assert (tmp_path / "config.toml").read_text() == before
        assert await runs_unasked(served, client, thread_id)
