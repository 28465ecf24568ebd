"""Plan mode: what the model is sent, the plans that it proposes, and that nothing is written."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.handlers.threads.context import MAX_PLAN_BYTES, PROMPT
from app_server.models.prompt.environment_context import (
    DEFAULT_MODE,
    MODE,
    PERMISSIONS,
    PLAN_MODE,
    newest_of_each,
)
from app_server.models.proposed_plan import Piece, PlanSplitter, split_plan
from app_server.tools.apply_patch import PLAN_MODE as REFUSED
from app_server.tools.exec_command import STAYS
from tests.support.harness import Served, WireClient, claim, methods_of, serve
from tests.support.host.sandboxes import working_sandbox
from tests.support.model import BREAK, Gate, calls, says

TEXT = "Intro.\n<proposed_plan>\n# Title\n\n- one\n</proposed_plan>\nAfter."


def mode(name: str, instructions: str | None = None) -> dict[str, Any]:
    settings = {
        "model": "scripted",
        "reasoning_effort": None,
        "developer_instructions": instructions,
    }
    return {"collaborationMode": {"mode": name, "settings": settings}}


def sent_text(served: Served, kind: str) -> str:
    item = dict(newest_of_each(served.model.requests[-1]["input"]))[kind]
    text: str = item["content"][0]["text"]
    return text


async def run(client: WireClient, thread_id: str, **options: Any) -> list[dict[str, Any]]:
    """Run a turn and return what was sent of the model's items, and its end."""
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said, **options})
    messages = await client.until("turn/completed")
    kept = []
    for message in messages:
        params = message.get("params", {})
        item = params.get("item", {})
        if item.get("type") == "userMessage":
            continue
        method = message.get("method", "")
        if method.startswith("item/") or method == "turn/completed":
            kept.append(message)
    return kept


def outline(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return method, id and text."""
    lines = []
    for message in messages:
        params = message["params"]
        item = params.get("item") or {}
        item_id = item.get("id") or params.get("itemId") or ""
        text = params.get("delta", item.get("text", ""))
        lines.append((message["method"].removeprefix("item/"), item_id, text))
    return lines


# The text of a message.


def joined(pieces: list[Piece]) -> list[Piece]:
    whole: list[Piece] = []
    for piece in pieces:
        if whole and whole[-1].part == piece.part:
            piece = Piece(piece.part, whole.pop().text + piece.text)
        whole.append(piece)
    return whole


LINES = st.sampled_from(
    ["<proposed_plan>", "</proposed_plan>", " <proposed_plan> ", "<proposed", "text", "", "- a\r"]
)


@given(st.lists(LINES), st.data())
def test_pieces_do_not_depend_on_how_a_text_arrives(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    whole = PlanSplitter()
    expected = joined([*whole.feed(text), *whole.finish()])
    splitter, pieces, rest = PlanSplitter(), list[Piece](), text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces += splitter.feed(rest[:size])
        rest = rest[size:]
    assert joined([*pieces, *splitter.finish()]) == expected


@pytest.mark.parametrize(
    ("text", "message", "plan"),
    [
        (TEXT, "Intro.\nAfter.", "# Title\n\n- one\n"),
        ("<proposed_plan>\nopen", "", "open"),
        ("a <proposed_plan>\nb", "a <proposed_plan>\nb", None),
        ("<proposed_plan>\n \n</proposed_plan>\nb", "b", None),
        ("</proposed_plan>\nb", "</proposed_plan>\nb", None),
        ("a\n<proposed_plan>", "a\n", None),
        (
            "<proposed_plan>\n1\n</proposed_plan>\nb\n<proposed_plan>\n2\n</proposed_plan>",
            "b\n",
            "1\n2\n",
        ),
    ],
)
def test_a_plan_stands_between_lines_of_its_own(text: str, message: str, plan: str | None) -> None:
    assert split_plan(text) == (message, plan)


# Turns.


@claim("plan:items")
async def test_a_proposed_plan_is_an_item_of_its_own(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        deltas = [TEXT[at : at + 9] for at in range(0, len(TEXT), 9)]
        served.model.scripts.append(says(*deltas))
        messages = await run(client, thread_id, **mode("plan"))
        turn = messages[-1]["params"]["turn"]
        plan = f"{turn['id']}-plan"
        lines = outline(messages)
        assert [line for line in lines if line[0] != "plan/delta"] == [
            ("started", "msg_1", ""),
            ("agentMessage/delta", "msg_1", "Intro.\n"),
            ("started", plan, ""),
            *[line for line in lines if line[0] == "agentMessage/delta"][1:],
            ("completed", plan, "# Title\n\n- one\n"),
            ("completed", "msg_1", "Intro.\nAfter."),
            ("turn/completed", "", ""),
        ]
        for kind, item_id, whole in (
            ("plan/delta", plan, "# Title\n\n- one\n"),
            ("agentMessage/delta", "msg_1", "Intro.\nAfter."),
        ):
            parts = [text for method, each, text in lines if (method, each) == (kind, item_id)]
            assert "".join(parts) == whole
        assert [item["text"] for item in turn["items"]] == ["Intro.\nAfter."]
        # The model gets back what it said, as it said it.
        await client.turn(thread_id, "next")
        assert ("assistant", TEXT) in served.model.inputs()
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        kinds = [item["type"] for item in read["thread"]["turns"][0]["items"]]
        assert kinds == ["userMessage", "plan", "agentMessage"]


@claim("plan:alone")
async def test_a_message_that_is_nothing_but_a_plan_is_one_item(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(says("\n", "<proposed_plan>\nonly", "\n</proposed_plan>"))
        messages = await run(client, thread_id, **mode("plan"))
        turn = messages[-1]["params"]["turn"]
        plan = f"{turn['id']}-plan"
        assert outline(messages)[:1] + outline(messages)[-2:] == [
            ("started", plan, ""),
            ("completed", plan, "only\n"),
            ("turn/completed", "", ""),
        ]
        assert (turn["items"], turn["itemsView"]) == ([], "notLoaded")


async def test_each_plan_of_a_turn_has_an_id_of_its_own(tmp_path: Path) -> None:
    both = [
        *says("<proposed_plan>\none\n</proposed_plan>", item_id="a")[:-1],
        *says("<proposed_plan>\ntwo\n</proposed_plan>", item_id="b")[1:],
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(both)
        messages = await run(client, thread_id, **mode("plan"))
        turn_id = messages[-1]["params"]["turn"]["id"]
        ended = [line[1:] for line in outline(messages) if line[0] == "completed"]
        assert ended == [(f"{turn_id}-plan", "one\n"), (f"{turn_id}-plan-2", "two\n")]


async def test_a_client_that_joins_is_shown_the_plan_so_far(tmp_path: Path) -> None:
    gate = Gate()
    start, *rest = says("<proposed_plan>\nso ", "far", " and on")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append([start, *rest[:3], gate, *rest[3:]])
        said = [{"type": "text", "text": "go"}]
        params = {"threadId": thread_id, "input": said, **mode("plan")}
        await client.call("turn/start", params)
        await gate.wait_until_reached()
        await client.wait_for("item/plan/delta", lambda params: params["delta"] == "far")
        async with served.client() as other:
            joined = await other.call("thread/resume", {"threadId": thread_id})
            (item,) = joined["thread"]["turns"][0]["items"][1:]
            assert (item["type"], item["text"]) == ("plan", "so far")
            gate.opened.set()
            assert (await other.wait_for("item/plan/delta"))["params"]["delta"] == " and on"


async def test_a_plan_that_breaks_off_is_shown_to_nobody_who_comes_later(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append([*says("<proposed_plan>\nhalf\n")[:-2], BREAK])
        messages = await run(client, thread_id, **mode("plan"))
        assert messages[-1]["params"]["turn"]["status"] == "failed"
        assert served.services.sessions.get(thread_id).clients.open_items.snapshot() == []


@claim("plan:default")
async def test_outside_of_plan_mode_the_lines_are_text(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(says(TEXT))
        messages = await run(client, thread_id)
        assert outline(messages)[-2] == ("completed", "msg_1", TEXT)


@claim("plan:told", "plan:read-only")
async def test_a_turn_in_plan_mode_is_read_only_and_the_model_is_instructed_so(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="danger-full-access")
        await client.turn(thread_id, "plan", **mode("plan"))
        assert sent_text(served, MODE) == f"<{MODE}>{PLAN_MODE}</{MODE}>"
        assert "Sandbox: `read-only`" in sent_text(served, PERMISSIONS)
        assert "Network: on." in sent_text(served, PERMISSIONS)
        assert len(served.model.inputs()) == 1
        state = served.services.sessions.get(thread_id).log.state
        assert state.settings.sandbox_policy.type == "dangerFullAccess", "the thread keeps its own"
        await client.turn(thread_id, "own", **mode("plan", "Plan as we do."))
        assert sent_text(served, MODE) == f"<{MODE}>Plan as we do.</{MODE}>"
        await client.turn(thread_id, "do", **mode("default"))
        assert sent_text(served, MODE) == f"<{MODE}>{DEFAULT_MODE}</{MODE}>"
        assert "`danger-full-access`" in sent_text(served, PERMISSIONS)


@claim("plan:patch")
async def test_a_patch_is_refused_in_plan_mode_and_nobody_is_asked(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="danger-full-access")
        call = calls({"name": "apply_patch", "arguments": {"input": patch}})
        served.model.scripts.append(call)
        messages = await run(client, thread_id, **mode("plan"))
        assert [line[:1] for line in outline(messages)] == [
            ("started",),
            ("agentMessage/delta",),
            ("completed",),
            ("turn/completed",),
        ]
        assert served.model.items()[-1]["output"] == REFUSED
        assert not (tmp_path / "new.txt").exists()


@claim("plan:commands")
async def test_no_command_leaves_the_sandbox_in_plan_mode(tmp_path: Path) -> None:
    working_sandbox()
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "rules").mkdir()
    rule = 'prefix_rule(pattern=["touch"], decision="allow")\n'
    (tmp_path / "rules" / "default.rules").write_text(rule)
    escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="workspace-write", cwd=str(folder))
        served.model.scripts += [
            command("touch allowed"),
            command("touch by-rule > new", **escalated),
            says("planned"),
            command("touch allowed"),
        ]
        await run(client, thread_id, **mode("plan"))
        allowed, asked = [i["output"] for i in served.model.items() if "output" in i]
        assert "Read-only file system" in allowed
        assert asked == f"exec_command failed: {STAYS}"
        assert list(folder.iterdir()) == []
        await client.turn(thread_id, "do it", **mode("default"))
        assert [path.name for path in folder.iterdir()] == ["allowed"]


def command(line: str, **members: Any) -> list[Any]:
    return calls({"name": "exec_command", "arguments": {"cmd": line, "login": False, **members}})


async def test_the_mode_of_a_thread_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "plan", **mode("plan"))
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        served.model.scripts.append(says("<proposed_plan>\np\n</proposed_plan>"))
        messages = await run(client, thread_id)
        assert "plan/delta" in [line[0] for line in outline(messages)]
        update = {"threadId": thread_id, **mode("default")}
        await client.call("thread/settings/update", update)
        settings = (await client.wait_for("thread/settings/updated"))["params"]["threadSettings"]
        assert settings["collaborationMode"] == mode("default")["collaborationMode"]


# Approved plans.


@claim("plan:approved")
async def test_an_approved_plan_is_sent_to_the_model_or_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.md"
    file.write_text("# Plan")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()

        async def prepare(markdown: str, path: str | None = None) -> str:
            params = {"threadId": thread_id, "markdown": markdown, "attachmentPath": path}
            result = await client.call("thread/prepareApprovedPlan", params)
            prompt: str = result["prompt"]
            return prompt

        assert await prepare("# Plan", str(file)) == (
            f"Carry out the approved plan. It is in the file {file}: read it first."
        )
        assert await prepare("# Plan", str(tmp_path)) == PROMPT
        assert await prepare("# Other", str(tmp_path / "none.md")) == PROMPT
        assert methods_of(client.take_kept()) == []
        await client.turn(thread_id, PROMPT)
        assert served.model.inputs() == [
            ("developer", "<approved_plan>\n# Plan\n</approved_plan>"),
            ("developer", "<approved_plan>\n# Other\n</approved_plan>"),
            ("user", PROMPT),
        ]
        for params, code, message in (
            ({"markdown": " \n"}, -32600, "The approved plan is empty."),
            (
                {"markdown": "x", "attachmentPath": "plan.md"},
                -32602,
                "`attachmentPath` must be absolute on the app server",
            ),
            (
                {"markdown": "x" * (MAX_PLAN_BYTES + 1)},
                -32600,
                f"the plan has more than {MAX_PLAN_BYTES} bytes and no file of it can be read; "
                "carry it out in the thread that made it",
            ),
        ):
            error = await client.refusal(
                "thread/prepareApprovedPlan", {"threadId": thread_id, **params}
            )
            assert (error.code, error.message) == (code, message)
        nobody = "01a2026d-7302-7701-bb0d-0fa672a7265b"
        error = await client.refusal(
            "thread/prepareApprovedPlan", {"threadId": nobody, "markdown": "x"}
        )
        assert error.message == f"thread not found: {nobody}"
