"""What items, events and settings become, without a server."""

from typing import Any

import pytest

from app_server.acp.options import SessionSettings
from app_server.acp.questions import acp_question
from app_server.acp.updates import (
    LIVE_CHARS,
    MAX_OPEN_ITEMS,
    ThreadUpdates,
    describe,
    diffs,
    title_of,
)

Message = dict[str, Any]
CWD = "/work"
DIFF = """--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
@@ -9 +9,2 @@
-last
\\ No newline at end of file
+last
+more
"""


def change(kind: str, diff: str, **more: str) -> Message:
    return {"path": "a.txt", "kind": {"type": kind, **more}, "diff": diff}


def shown(old: str | None, new: str, kind: str, path: str = "/work/a.txt") -> Message:
    meta = {"kind": kind}
    return {"type": "diff", "path": path, "oldText": old, "newText": new, "_meta": meta}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            change("update", DIFF),
            [
                shown("one\ntwo\nthree\n", "one\n2\nthree\n", "update"),
                shown("last", "last\nmore\n", "update"),
            ],
        ),
        (change("add", "new\n"), [shown(None, "new\n", "add")]),
        (change("delete", "old\n"), [shown("old\n", "", "delete")]),
        (
            change("update", "@@ -1 +1 @@\n-a\n+b\n", move_path="/other/b.txt"),
            [shown("a\n", "b\n", "update", "/other/b.txt")],
        ),
        (change("update", "no diff at all"), []),
    ],
)
def test_changes_are_shown_as_their_parts(changed: Message, expected: list[Message]) -> None:
    assert list(diffs([changed], CWD)) == expected


@pytest.mark.parametrize(
    ("item", "title", "kind"),
    [
        ({"type": "webSearch", "query": "it"}, "Web search: it", "fetch"),
        ({"type": "imageView", "path": "a.png"}, "View image /work/a.png", "read"),
        ({"type": "dynamicToolCall", "tool": "t", "arguments": {}}, "t", "other"),
        ({"type": "collabAgentToolCall", "tool": "wait"}, "Agents: wait", "other"),
        ({"type": "contextCompaction"}, "Compact the context", "think"),
        ({"type": "imageGeneration"}, "Make an image", "other"),
        (
            {"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": 1,
             "readOnlyHint": True},
            "mcp.s.t",
            "read",
        ),
        (
            {"type": "commandExecution", "command": "rg x", "cwd": "/", "commandActions": [
                {"type": "search"}, {"type": "listFiles", "path": "a"}]},
            "rg x",
            "search",
        ),
        (
            {"type": "commandExecution", "command": "sh -c 'it'", "cwd": "/", "commandActions": [
                {"type": "read", "path": "a"}, {"type": "unknown"}]},
            "it",
            "execute",
        ),
        ({"type": "commandExecution", "command": "echo 'a", "cwd": "/"}, "echo 'a", "execute"),
    ],
)  # fmt: skip
def test_calls_have_titles_and_kinds(item: Message, title: str, kind: str) -> None:
    described = describe(item, CWD)
    assert described is not None
    assert (described["title"], described["kind"]) == (title, kind)


def test_what_is_no_call_is_not_described() -> None:
    for kind in ("sleep", "hookPrompt", "subAgentActivity", "enteredReviewMode", "newer"):
        assert describe({"type": kind}, CWD) is None


def command(item_id: str, **more: Any) -> Message:
    plain = {"type": "commandExecution", "id": item_id, "command": "c", "cwd": "/"}
    return {**plain, "status": "inProgress", **more}


def test_live_output_is_its_end_and_open_items_are_bounded() -> None:
    updates = ThreadUpdates(CWD, shows_terminals=False)
    for number in range(MAX_OPEN_ITEMS + 1):
        updates.of_event("item/started", {"item": command(f"c{number}")})
    delta = {"itemId": "c0", "delta": "lost"}
    assert updates.of_event("item/commandExecution/outputDelta", delta) == []
    delta = {"itemId": "c1", "delta": "x" * LIVE_CHARS}
    updates.of_event("item/commandExecution/outputDelta", delta)
    (update,) = updates.of_event("item/commandExecution/outputDelta", {**delta, "delta": "end"})
    text = update["content"][0]["content"]["text"]
    assert text == "x" * (LIVE_CHARS - 3) + "end"
    # The end of one that was forgotten is told as a call.
    (ended,) = updates.of_event("item/completed", {"item": command("c0", status="declined")})
    assert (ended["sessionUpdate"], ended["status"]) == ("tool_call", "failed")
    (ended,) = updates.of_event("item/completed", {"item": command("c1", status="completed")})
    assert (ended["sessionUpdate"], ended["status"]) == ("tool_call_update", "completed")


def test_text_that_was_not_streamed_comes_whole_and_other_text_once() -> None:
    updates = ThreadUpdates(CWD, shows_terminals=True)
    message = {"type": "agentMessage", "id": "m", "text": "All."}
    (chunk,) = updates.of_event("item/completed", {"item": message})
    assert chunk["content"] == {"type": "text", "text": "All."}
    updates.of_event("item/agentMessage/delta", {"itemId": "m", "delta": "All."})
    assert updates.of_event("item/completed", {"item": message}) == []
    updates.of_event("turn/completed", {"turn": {"id": "t"}})
    assert len(updates.of_event("item/completed", {"item": message})) == 1
    thought = {"type": "reasoning", "id": "r", "summary": ["A.", "B."], "content": []}
    (chunk,) = updates.of_event("item/completed", {"item": thought})
    assert (chunk["sessionUpdate"], chunk["content"]["text"]) == ("agent_thought_chunk", "A.\n\nB.")
    begins = {"itemId": "r", "summaryIndex": 1}
    (chunk,) = updates.of_event("item/reasoning/summaryPartAdded", begins)
    assert chunk["content"]["text"] == "\n\n"
    assert updates.of_event("item/reasoning/summaryPartAdded", {**begins, "summaryIndex": 0}) == []


def test_messages_of_others_are_told_and_those_of_the_editor_are_not() -> None:
    updates = ThreadUpdates(CWD, shows_terminals=False)
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "url": "data:image/png;base64,QQ=="},
        {"type": "image", "url": "https://example.com/a.png"},
        {"type": "localImage", "path": "/work/b.png"},
        {"type": "mention", "name": "app", "path": "app://x"},
    ]
    item = {"type": "userMessage", "id": "u", "clientId": "mine", "content": parts}
    told = [update["content"] for update in updates.of_event("item/started", {"item": item})]
    assert told == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "mimeType": "image/png", "data": "QQ=="},
        {"type": "resource_link", "name": "/work/b.png", "uri": "file:///work/b.png"},
        {"type": "resource_link", "name": "app", "uri": "app://x"},
    ]
    updates.expect_message("mine")
    assert updates.of_event("item/started", {"item": item}) == []


def test_results_of_tools_are_content_where_both_protocols_have_it() -> None:
    updates = ThreadUpdates(CWD, shows_terminals=False)
    call = {"type": "mcpToolCall", "id": "m", "server": "s", "tool": "t", "arguments": {}}
    content = [{"type": "text", "text": "a"}, {"type": "image", "data": "QQ=="}, {"type": "x"}, 1]
    result = {"content": content, "structuredContent": None, "_meta": None}
    ended = {**call, "status": "completed", "result": result}
    (told,) = updates.of_history(ended)
    assert told["content"] == [{"type": "content", "content": content[0]}]
    failed = {**call, "status": "failed", "error": {"message": "gone"}}
    (told,) = updates.of_history(failed)
    assert (told["status"], told["content"][0]["content"]["text"]) == ("failed", "gone")


@pytest.mark.parametrize(
    ("policy", "reviewer", "sandbox", "mode"),
    [
        ("on-request", "user", "readOnly", "read-only"),
        ("on-request", "user", "workspaceWrite", "workspace-write"),
        ("on-request", "guardian_subagent", "workspaceWrite", "agent"),
        ("never", "auto_review", "dangerFullAccess", "agent-full-access"),
        ("untrusted", "user", "workspaceWrite", "configured"),
        ({"granular": {}}, "user", "readOnly", "configured"),
        ("on-request", "user", "dangerFullAccess", "configured"),
    ],
)
def test_settings_are_a_mode_or_none(policy: Any, reviewer: str, sandbox: str, mode: str) -> None:
    answer = {"approvalPolicy": policy, "approvalsReviewer": reviewer, "model": "m"}
    settings = SessionSettings.of_answer({**answer, "sandbox": {"type": sandbox}})
    assert settings.mode == mode
    (option, *_) = settings.options([])
    assert mode in [value["value"] for value in option["options"]]


ASKED = {"threadId": "t", "turnId": "u", "itemId": "i"}


@pytest.mark.parametrize(
    ("decision", "option", "kind"),
    [
        ("accept", "accept", "allow_once"),
        ("decline", "decline", "reject_once"),
        (
            {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "push"]}},
            "acceptRule",
            "allow_always",
        ),
        (
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {
                "host": "a.b", "action": "deny"}}},
            "denyHost",
            "reject_always",
        ),
        (
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {
                "host": "a.b", "action": "allow"}}},
            "allowHost",
            "allow_always",
        ),
    ],
)  # fmt: skip
def test_each_decision_is_an_option(decision: Any, option: str, kind: str) -> None:
    asked = {**ASKED, "command": "git push", "cwd": "/", "availableDecisions": [decision]}
    updates = ThreadUpdates(CWD, shows_terminals=False)
    question = acp_question("item/commandExecution/requestApproval", asked, updates, {})
    assert question is not None
    (offered,) = question.params["options"]
    assert (offered["optionId"], offered["kind"]) == (option, kind)
    chosen = {"outcome": {"outcome": "selected", "optionId": option}}
    assert question.result(chosen) == {"decision": decision}
    outcomes: list[Any] = [None, {"outcome": "cancelled"}, {"optionId": []}, {"optionId": {}}]
    for nothing in (None, 1, {}, *({"outcome": outcome} for outcome in outcomes)):
        assert question.result(nothing) == {"decision": "cancel"}
    other = {"outcome": {"outcome": "selected", "optionId": "other"}}
    assert question.result(other) == {"decision": "cancel"}


def test_permissions_are_granted_for_a_turn_or_a_session() -> None:
    wanted = {"network": {"enabled": True}}
    updates = ThreadUpdates(CWD, shows_terminals=False)
    asked = {**ASKED, "permissions": wanted, "cwd": "/", "reason": "To fetch."}
    question = acp_question("item/permissions/requestApproval", asked, updates, {})
    assert question is not None
    assert question.params["toolCall"]["title"] == "To fetch."
    for option, granted in (
        ("turn", {"permissions": wanted, "scope": "turn"}),
        ("session", {"permissions": wanted, "scope": "session"}),
        ("decline", {"permissions": {}, "scope": "turn"}),
    ):
        chosen = {"outcome": {"outcome": "selected", "optionId": option}}
        assert question.result(chosen) == granted


def test_what_an_editor_cannot_show_is_left_to_others() -> None:
    updates = ThreadUpdates(CWD, shows_terminals=False)
    form = {"threadId": "t", "serverName": "s", "mode": "form", "message": "?", "_meta": None}
    asked = {**form, "requestedSchema": {"type": "object", "properties": {}}}
    assert acp_question("mcpServer/elicitation/request", asked, updates, {}) is None
    urls: Message = {"elicitation": {"url": {}}}
    assert acp_question("mcpServer/elicitation/request", asked, updates, urls) is None
    page = {**form, "mode": "url", "url": "https://a.b", "elicitationId": "e"}
    question = acp_question("mcpServer/elicitation/request", page, updates, urls)
    assert question is not None
    assert question.params["url"] == "https://a.b"
    assert question.result({"action": "accept"}) == {"action": "accept", "content": {}}
    assert question.result({"action": "decline"}) == {"action": "decline"}
    assert question.result({"action": "other"}) == {"action": "cancel"}
    secret = {"id": "q", "header": "h", "question": "?", "isSecret": True}
    forms: Message = {"elicitation": {"form": {}}}
    secrets = {**ASKED, "questions": [secret]}
    assert acp_question("item/tool/requestUserInput", secrets, updates, forms) is None
    assert acp_question("item/tool/call", ASKED, updates, forms) is None


def test_a_title_is_the_first_line_cut() -> None:
    assert title_of("  One.\nTwo.") == "One."
    assert title_of("x" * 81) == "x" * 79 + "…"
    assert title_of("x" * 80) == "x" * 80
    assert title_of(" \n") == ""
