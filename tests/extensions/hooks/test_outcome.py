"""What the output of a hook means, as a table."""

import json
from typing import Any

import pytest

from app_server.extensions.hooks.definition import Event
from app_server.extensions.hooks.running import MAX_TEXT_CHARS, Outcome, read_outcome, together


def entries(outcome: Outcome) -> list[tuple[str, str]]:
    return [(entry.kind, entry.text) for entry in outcome.entries]


def specific(event: str, **members: Any) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **members}})


DENY = {"behavior": "deny", "message": "no"}


@pytest.mark.parametrize(
    ("event", "code", "stdout", "stderr", "status", "shown"),
    [
        ("UserPromptSubmit", 0, "", "", "completed", []),
        ("UserPromptSubmit", 0, " words\n", "", "completed", [("context", "words")]),
        ("PreToolUse", 0, "words", "", "completed", []),
        ("Stop", 2, "", "why\n", "blocked", [("feedback", "why")]),
        ("Stop", 2, "", "", "blocked", [("feedback", "a hook refused, without a reason")]),
        ("Stop", 1, "", "x", "failed", [("error", "hook exited with code 1")]),
        ("Stop", -9, "", "", "failed", [("error", "hook exited with code -9")]),
        (
            "Stop",
            0,
            "{bad",
            "",
            "failed",
            [("error", "hook printed what looks like JSON, and is none")],
        ),
        ("Stop", 0, '{"systemMessage":"look"}', "", "completed", [("warning", "look")]),
        (
            "Stop",
            0,
            '{"systemMessage":"look","decision":"block","reason":"more"}',
            "",
            "blocked",
            [("warning", "look"), ("feedback", "more")],
        ),
        (
            "UserPromptSubmit",
            0,
            '{"continue":false,"stopReason":"halt"}',
            "",
            "stopped",
            [("stop", "halt")],
        ),
        (
            "PreToolUse",
            0,
            specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"),
            "",
            "blocked",
            [("feedback", "no")],
        ),
        *(
            (
                "PreToolUse",
                0,
                specific("PreToolUse", permissionDecision=decision),
                "",
                "failed",
                [
                    (
                        "error",
                        f"PreToolUse hook returned unsupported permissionDecision:{decision}",
                    )
                ],
            )
            for decision in ("allow", "ask")
        ),
        (
            "PermissionRequest",
            0,
            specific("PermissionRequest", decision=DENY),
            "",
            "blocked",
            [("feedback", "no")],
        ),
        (
            "PostToolUse",
            0,
            specific("PostToolUse", additionalContext="ctx"),
            "",
            "completed",
            [("context", "ctx")],
        ),
        # A decision of another event means nothing.
        ("PreToolUse", 0, '{"decision":"block","reason":"x"}', "", "completed", []),
        ("Stop", 0, specific("Stop", decision=DENY), "", "completed", []),
        ("Stop", 0, '{"decision":5,"hookSpecificOutput":[]}', "", "completed", []),
    ],
)
def test_what_a_hook_prints_has_its_meaning(
    event: Event, code: int, stdout: str, stderr: str, status: str, shown: list[tuple[str, str]]
) -> None:
    outcome = read_outcome(event, code, stdout, stderr)
    assert (outcome.status, entries(outcome)) == (status, shown)
    assert (outcome.blocked is not None) == (status in ("blocked", "stopped"))


def test_what_a_hook_changes_is_kept() -> None:
    wanted = {"command": "echo changed"}
    changed = specific("PreToolUse", permissionDecision="allow", updatedInput=wanted)
    assert read_outcome("PreToolUse", 0, changed, "").changed_input == wanted
    allowed = specific("PermissionRequest", decision={"behavior": "allow"})
    assert read_outcome("PermissionRequest", 0, allowed, "").allows
    assert not read_outcome("Stop", 0, allowed, "").allows


def test_long_texts_are_cut() -> None:
    outcome = read_outcome("UserPromptSubmit", 0, "x" * (MAX_TEXT_CHARS + 1), "")
    assert outcome.context == ["x" * MAX_TEXT_CHARS + " […]"]


def test_one_refusal_is_enough() -> None:
    allowed = Outcome("completed", allows=True, context=["a"])
    refused = Outcome("blocked", blocked="no", context=["b"])
    both = together([allowed, refused])
    assert (both.blocked, both.allows, both.context) == ("no", False, ["a", "b"])
    assert together([allowed]).allows
