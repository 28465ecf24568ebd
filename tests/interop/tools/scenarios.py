"""The conversations: what the model calls, under which rules, and what the user answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]


def command(cmd: str, **arguments: Any) -> Item:
    """Make a call of `exec_command`."""
    return function("exec_command", cmd=cmd, **arguments)


def function(name: str, **arguments: Any) -> Item:
    """Make a call of a function."""
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def patch(*lines: str) -> Item:
    """Make a call of the custom tool `apply_patch`."""
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return {"type": "custom_tool_call", "name": "apply_patch", "input": text}


@dataclass(frozen=True)
class Scenario:
    """One thread; each call is made by a turn of its own."""

    name: str
    sandbox: str
    policy: Any
    calls: Sequence[Item]
    answer: str | Item = "accept"
    model: str = "mock-model"
    files: Mapping[str, str] = field(default_factory=lambda: {"a.txt": "hello\n"})
    reason: str | None = None
    """Why the two differ; None: they must not."""


def _commands() -> list[Scenario]:
    escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    read, write, full = "read-only", "workspace-write", "danger-full-access"
    return [
        Scenario("read-ok", read, "on-request", [command("cat a.txt")]),
        Scenario("read-only-write", read, "never", [command("touch b.txt; echo rc=$?")]),
        *(
            Scenario(
                f"escalate-{answer}",
                read,
                "on-request",
                [command("touch c.txt", **escalated)],
                answer,
            )
            for answer in ("accept", "decline", "cancel", "acceptForSession")
        ),
        Scenario(
            "escalate-never",
            read,
            "never",
            [command("touch c.txt", **escalated)],
            reason="one sentence for every policy that does not allow to ask",
        ),
        Scenario(
            "escalate-twice-for-session",
            read,
            "on-request",
            [command("touch c.txt", **escalated), command("touch c.txt", **escalated)],
            "acceptForSession",
        ),
        Scenario(
            "untrusted-safe",
            write,
            "untrusted",
            [command("ls"), command("git status"), command("cat a.txt | head -1")],
            reason="known-safe reads run without a question here",
        ),
        Scenario("untrusted-write", write, "untrusted", [command("touch d.txt")]),
        Scenario("untrusted-decline", write, "untrusted", [command("touch d.txt")], "decline"),
        Scenario(
            "workspace-write",
            write,
            "on-request",
            [
                command("touch e.txt && echo done"),
                command("touch ~/outside.txt; echo rc=$?"),
                command("touch .git/x; echo rc=$?"),
            ],
        ),
        Scenario(
            "denied-then-asked",
            read,
            "on-request",
            [command("touch f.txt")],
            reason="the user is asked once whether it may run without the sandbox",
        ),
        Scenario(
            "denied-then-declined",
            read,
            "on-request",
            [command("touch f.txt")],
            "decline",
            reason="the user is asked once whether it may run without the sandbox",
        ),
        Scenario("full-access", full, "never", [command("echo out; echo err >&2; exit 3")]),
        Scenario(
            "long", full, "never", [command("echo first; sleep 2; echo last", yield_time_ms=500)]
        ),
        Scenario("killed-by-signal", full, "never", [command("kill -9 $$")]),
        Scenario("not-found", full, "never", [command("no-such-program-here")]),
        Scenario("workdir", full, "never", [command("pwd", workdir="/")]),
        Scenario(
            "no-such-workdir",
            full,
            "never",
            [command("pwd", workdir="/no/such/folder")],
            reason="the model is told which folder is missing",
        ),
        Scenario("no-login", full, "never", [command("echo hi", login=False)]),
        Scenario("tty", full, "never", [command("tty >/dev/null && echo tty", tty=True)]),
        Scenario(
            "dangerous-on-request",
            write,
            "on-request",
            [command("rm -rf build")],
            reason="no rule is offered for what is dangerous, and the user is told why it is asked",
        ),
        Scenario(
            "dangerous-never",
            write,
            "never",
            [command("rm -rf build")],
            reason="what is dangerous runs in the sandbox",
        ),
        Scenario(
            "dangerous-full-access",
            full,
            "on-request",
            [command("rm -rf build")],
            reason="no rule is offered for what is dangerous, and the user is told why it is asked",
        ),
        Scenario(
            "network-off", write, "never", [command("echo > /dev/tcp/127.0.0.1/9; echo rc=$?")]
        ),
        Scenario("empty-command", full, "never", [command("")]),
        Scenario(
            "wrong-type",
            full,
            "never",
            [function("exec_command", cmd=["ls"])],
            reason="the text names the argument",
        ),
        Scenario(
            "missing-argument",
            full,
            "never",
            [function("exec_command", workdir="/")],
            reason="the text names the argument",
        ),
        Scenario("unknown-tool", read, "never", [function("no_such_tool")]),
        Scenario(
            "no-such-session", full, "never", [function("write_stdin", session_id=1, chars="x")]
        ),
    ]


def _patches() -> list[Scenario]:
    read, write = "read-only", "workspace-write"
    add = patch("*** Add File: new.txt", "+one", "+two")
    edit = patch("*** Update File: a.txt", "@@", "-hello", "+goodbye")
    missing = patch("*** Update File: a.txt", "@@", "-no such line", "+goodbye")
    known: Mapping[str, Any] = {"model": "gpt-5.5"}
    return [
        Scenario("patch-add", write, "on-request", [add], **known),
        Scenario("patch-edit", write, "on-request", [edit], **known),
        Scenario("patch-delete", write, "on-request", [patch("*** Delete File: a.txt")], **known),
        Scenario(
            "patch-move",
            write,
            "on-request",
            [patch("*** Update File: a.txt", "*** Move to: b.txt", "@@", "-hello", "+goodbye")],
            **known,
        ),
        Scenario("patch-unmatched", write, "on-request", [missing], **known),
        Scenario(
            "patch-missing-file",
            write,
            "on-request",
            [patch("*** Update File: none.txt", "@@", "-a", "+b")],
            **known,
        ),
        Scenario(
            "patch-add-over", write, "on-request", [patch("*** Add File: a.txt", "+x")], **known
        ),
        *(
            Scenario(f"patch-readonly-{answer}", read, "on-request", [add], answer, **known)
            for answer in ("accept", "decline", "cancel", "acceptForSession")
        ),
        Scenario("patch-readonly-never", read, "never", [add], **known),
        Scenario("patch-untrusted", write, "untrusted", [add], **known),
        Scenario(
            "patch-for-session",
            read,
            "on-request",
            [add, patch("*** Update File: new.txt", "@@", "-one", "+uno")],
            "acceptForSession",
            **known,
        ),
        Scenario(
            "patch-heredoc",
            write,
            "on-request",
            [command("apply_patch <<'EOF'\n" + add["input"] + "\nEOF")],
        ),
        Scenario("patch-garbage", write, "on-request", [{**add, "input": "no patch"}], **known),
    ]


def _others() -> list[Scenario]:
    write = "workspace-write"
    plan = [{"step": "one", "status": "completed"}, {"step": "two", "status": "in_progress"}]
    return [
        Scenario(
            "plan",
            write,
            "never",
            [function("update_plan", plan=plan, explanation="why")],
            model="gpt-5.5",
        ),
        Scenario(
            "plan-broken", write, "never", [function("update_plan", plan="x")], model="gpt-5.5"
        ),
        Scenario(
            "image-missing",
            write,
            "never",
            [function("view_image", path="none.png")],
            model="gpt-5.5",
        ),
        Scenario(
            "question",
            write,
            "never",
            [
                function(
                    "request_user_input",
                    questions=[
                        {
                            "id": "q",
                            "header": "Which",
                            "question": "Which one?",
                            "options": [
                                {"label": "A", "description": "a"},
                                {"label": "B", "description": "b"},
                            ],
                        }
                    ],
                )
            ],
            model="gpt-5.5",
        ),
    ]


SCENARIOS: Sequence[Scenario] = (*_commands(), *_patches(), *_others())
