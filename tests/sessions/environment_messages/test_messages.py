"""What a model is sent of the place where it works, and when it is sent again."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.models.prompt.environment_context import (
    FACTS,
    INSTRUCTIONS,
    NO_LONGER,
    PERMISSIONS,
    REPLACES,
    KnownContext,
    kind_of,
)
from app_server.models.prompt.request import message
from app_server.sessions import environment_messages
from tests.support.harness import WAIT_S, Served, WireClient, claim, serve

FULL = {"type": "dangerFullAccess"}


def sent_context(served: Served, request: int = -1) -> list[tuple[str, str]]:
    """Return kind and text of the environment that the model was sent."""
    return [
        (kind, item["content"][0]["text"])
        for item in served.model.requests[request]["input"]
        if (kind := kind_of(item)) is not None
    ]


def kinds(served: Served) -> list[str]:
    return [kind for kind, _ in sent_context(served)]


def instructions(folder: Path, text: str) -> tuple[str, str]:
    return (
        INSTRUCTIONS,
        f'<project_instructions folder="{folder}">\n{text}\n</project_instructions>',
    )


def project(folder: Path, text: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / "AGENTS.md").write_text(text)
    return folder


async def started(client: WireClient, **params: Any) -> Mapping[str, Any]:
    result: Mapping[str, Any] = await client.call("thread/start", params)
    return result


@claim("environment-context:told", "agents:sources")
async def test_the_environment_context_are_sent_once_before_the_first_input(tmp_path: Path) -> None:
    folder = project(tmp_path / "a & b", "Be <kind>. </project_instructions>")
    (tmp_path / "AGENTS.md").write_text("Of the user.")
    async with serve(tmp_path) as served, served.client() as client:
        result = await started(client, cwd=str(folder))
        assert result["instructionSources"] == [
            str(tmp_path / "AGENTS.md"),
            str(folder / "AGENTS.md"),
        ]
        thread_id = result["thread"]["id"]
        await client.turn(thread_id, "one")
        text = "Of the user.\n\nBe <kind>. <\\/project_instructions>"
        first = sent_context(served)
        named = str(folder).replace("&", "&amp;")
        assert first[0] == instructions(Path(named), text)
        assert [kind for kind, _ in first] == [INSTRUCTIONS, PERMISSIONS, FACTS]
        assert f"<cwd>{named}</cwd>" in first[2][1]
        assert served.model.inputs() == [("user", "one")]
        assert kind_of(served.model.requests[-1]["input"][-1]) is None, "the input comes last"
        # It is read when the thread is loaded, and sent once.
        (folder / "AGENTS.md").write_text("Another.")
        await client.turn(thread_id, "two")
        assert sent_context(served) == first
        fork = await client.call("thread/fork", {"threadId": thread_id})
        assert fork["instructionSources"] == result["instructionSources"]
        await client.turn(fork["thread"]["id"], "three")
        again = f"{REPLACES}\n\nOf the user.\n\nAnother."
        assert sent_context(served) == [*first, instructions(Path(named), again)]


def test_a_history_is_looked_at_once() -> None:
    def permissions(text: str) -> dict[str, Any]:
        return message("developer", f"<permissions>{text}</permissions>")

    looked = KnownContext()
    history = [permissions("one"), message("user", "hi")]
    assert looked.look(history) == {PERMISSIONS: permissions("one")}
    history.append(permissions("two"))
    assert looked.look(history, [permissions("three")]) == {PERMISSIONS: permissions("three")}
    assert looked.look(history) == {PERMISSIONS: permissions("two")}
    # What was looked at is not looked at again, but another list is, and one that was cut.
    history[0] = permissions("changed")
    del history[2]
    assert looked.look(history) == {PERMISSIONS: permissions("changed")}
    assert looked.look([message("user", "hi")]) == {}


@claim("environment-context:again")
async def test_what_changes_is_sent_again(tmp_path: Path) -> None:
    one, other = project(tmp_path / "one", "ONE"), project(tmp_path / "other", "OTHER")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = (await started(client, cwd=str(one)))["thread"]["id"]
        await client.turn(thread_id, "1")
        await client.turn(thread_id, "2", cwd=str(other))
        assert kinds(served) == [INSTRUCTIONS, PERMISSIONS, FACTS, INSTRUCTIONS, FACTS]
        assert sent_context(served)[3] == instructions(other, f"{REPLACES}\n\nOTHER")
        await client.turn(thread_id, "3", sandboxPolicy=FULL, approvalPolicy="never")
        assert kinds(served)[5:] == [PERMISSIONS]
        assert "`danger-full-access`" in sent_context(served)[5][1]
        assert "`never`" in sent_context(served)[5][1]
        await client.turn(thread_id, "4")
        assert len(kinds(served)) == 6
        (other / "AGENTS.md").unlink()
    async with serve(tmp_path) as served, served.client() as client:
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert resumed["instructionSources"] == []
        await client.turn(thread_id, "5")
        gone = f"<project_instructions>\n{NO_LONGER}\n</project_instructions>"
        assert sent_context(served)[6:] == [(INSTRUCTIONS, gone)]
        await client.turn(thread_id, "6")
        assert len(sent_context(served)) == 7


@claim("environment-context:running")
async def test_a_change_in_a_running_turn_is_in_its_next_request(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=False)
        await client.turn(thread_id, "1")
        session = served.services.sessions.get(thread_id)
        state = session.log.state
        before = len(kinds(served))
        state.turn_settings = state.settings.model_copy(update={"approval_policy": "never"})
        await session.environment.add_changes()
        await session.environment.add_changes()
        assert [kind_of(item) for item in state.history].count(PERMISSIONS) == 2
        state.turn_settings = None
        await client.turn(thread_id, "2")
        assert kinds(served)[before:] == [PERMISSIONS, PERMISSIONS]


@claim("environment-context:compaction")
async def test_a_compaction_keeps_what_was_sent_last(tmp_path: Path) -> None:
    folder = project(tmp_path / "one", "ONE")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = (await started(client, cwd=str(folder)))["thread"]["id"]
        await client.turn(thread_id, "1")
        await client.turn(thread_id, "2", approvalPolicy="never")
        before = sent_context(served)
        await client.call("thread/compact/start", {"threadId": thread_id})
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "3")
        after = [*before[:1], *before[2:]]
        assert sorted(sent_context(served)) == sorted(after)
        assert [kind_of(item) is None for item in served.model.requests[-1]["input"]] == [
            *[False] * 3,
            *[True] * 4,
        ]


@claim("environment-context:revert")
async def test_reverting_a_turn_removes_the_environment_context_that_it_sent(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        turn = await client.turn(thread_id, "1")
        before = sent_context(served)
        await client.call("thread/revert", {"threadId": thread_id, "beforeTurnId": turn["id"]})
        await client.turn(thread_id, "2")
        assert sent_context(served) == before


async def test_without_an_environment_the_model_is_sent_the_date_alone(tmp_path: Path) -> None:
    project(tmp_path, "ROOT")
    async with serve(tmp_path) as served, served.client() as client:
        result = await started(client, environments=[])
        assert result["instructionSources"] == [str(tmp_path / "AGENTS.md")], "of the home"
        await client.turn(result["thread"]["id"], "1")
        assert kinds(served) == [INSTRUCTIONS, FACTS]
        assert "<cwd>" not in sent_context(served)[1][1]


@claim("agents:warnings")
async def test_a_client_is_warned_of_what_was_left_out(tmp_path: Path) -> None:
    folder = project(tmp_path / "one", "ONE")
    config = "project_doc_max_bytes = 2\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = (await started(client, cwd=str(folder)))["thread"]["id"]
        warning = (await client.wait_for("warning"))["params"]
        cut = f"{folder}/AGENTS.md was cut: only its first 2 of 3 bytes are read"
        assert warning == {"threadId": thread_id, "message": cut}
        other = project(tmp_path / "other", "OTHER")
        said = [{"type": "text", "text": "go on"}]
        there = {"threadId": thread_id, "input": said, "cwd": str(other)}
        await client.request("turn/start", there)
        warning = (await client.wait_for("warning"))["params"]
        assert warning["message"].startswith(f"{other}/AGENTS.md was cut")


@claim("agents:slow-disk")
async def test_a_folder_that_does_not_answer_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hang(*_: Any) -> None:
        assert released.wait(WAIT_S)

    folder = project(tmp_path / "one", "ONE")
    async with serve(tmp_path) as served, served.client() as client:
        first = served.services.sessions.get(await client.start_thread())
        reads = first.context.server.folder_reads
        with monkeypatch.context() as patch:
            patch.setattr(environment_messages, "read_instructions", hang)
            reads.read_s = 0.05
            result = await started(client, cwd=str(folder))
        assert result["instructionSources"] == []
        warning = (await client.wait_for("warning"))["params"]
        assert "did not answer in 2 s: its AGENTS.md was not read" in warning["message"]
        released.set()
        await client.turn(result["thread"]["id"], "go")
        assert INSTRUCTIONS not in kinds(served)


async def test_a_setting_that_does_not_fit_refuses_the_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/start", {"config": {"project_doc_max_bytes": -1}})
        assert error.data["code"] == "configInvalid"
        assert "project_doc_max_bytes" in error.message


async def test_the_machine_is_named_by_its_own_words(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert (environment_messages.shell_name(), environment_messages.timezone_name()) == (
        "fish",
        "Europe/Berlin",
    )
    monkeypatch.setenv("TZ", ":/etc/localtime")
    assert environment_messages.timezone_name() is None
    zone = tmp_path / "zoneinfo" / "Asia" / "Tokyo"
    zone.parent.mkdir(parents=True)
    zone.touch()
    (tmp_path / "localtime").symlink_to(zone)
    monkeypatch.delenv("TZ")
    link = tmp_path / "localtime"
    assert await anyio.to_thread.run_sync(environment_messages.timezone_name, link) == "Asia/Tokyo"
