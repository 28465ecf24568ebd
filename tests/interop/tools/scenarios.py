"""The conversations: what the model calls, under which rules, and what the user answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]


RULES = """\
prefix_rule(pattern=["touch", "allowed.txt"], decision="allow")
prefix_rule(pattern=["touch", "asked.txt"], decision="prompt", justification="rules say so")
prefix_rule(pattern=["touch", "forbidden.txt"], decision="forbidden", justification="rules say no")
"""
"""Those of the home of each server."""


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


WORDS = "the model is told in other words"
ASKED = "touch asked.txt"
LEARNED = "touch twice.txt"


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
        Scenario("read-only-write", read, "never", [command("touch b.txt 2>&1; echo rc=$?")]),
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
            [command("ls"), command("wc -l a.txt"), command("cat a.txt | head -1")],
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
                command("touch ~/outside.txt 2>&1; echo rc=$?"),
                command("touch .git/x 2>&1; echo rc=$?"),
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
        Scenario("full-access", full, "never", [command("exec 2>&1; echo out; ls /no; exit 3")]),
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
            "dangerous-full-access-never", full, "never", [command("rm -rf build")], reason=WORDS
        ),
        Scenario(
            "dangerous-git",
            full,
            "on-request",
            [command("git reset --hard"), command("nohup rm -rf build")],
            reason="more than `rm -f` is known to be dangerous",
        ),
        Scenario(
            "network-off",
            write,
            "never",
            [command("exec 2>&1; echo > /dev/tcp/127.0.0.1/9; echo rc=$?")],
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


def _asking() -> list[Scenario]:
    escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    read, write, full = "read-only", "workspace-write", "danger-full-access"
    learn = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "learned.txt"]}}
    pushes = command("git push a b", prefix_rule=["git", "push"], **escalated)
    return [
        Scenario("rule-allow", read, "never", [command("touch allowed.txt")]),
        Scenario("rule-allow-untrusted", read, "untrusted", [command("touch allowed.txt")]),
        Scenario(
            "rule-allow-of-a-part",
            write,
            "on-request",
            [command("touch allowed.txt && touch other.txt")],
        ),
        *(
            Scenario(f"rule-prompt-{answer}", write, "on-request", [command(ASKED)], answer)
            for answer in ("accept", "decline", "cancel")
        ),
        Scenario("rule-prompt-untrusted", write, "untrusted", [command(ASKED)]),
        Scenario("rule-prompt-never", write, "never", [command(ASKED)], reason=WORDS),
        Scenario(
            "rule-prompt-granular",
            write,
            granular(rules=False, sandbox_approval=True),
            [command(ASKED)],
            reason=WORDS,
        ),
        *(
            Scenario(f"rule-forbidden-{policy}", write, policy, [command("touch forbidden.txt")])
            for policy in ("never", "on-request", "untrusted")
        ),
        Scenario(
            "rule-forbidden-in-compound", write, "never", [command("ls; touch forbidden.txt")]
        ),
        Scenario(
            "rule-forbidden-hidden",
            write,
            "never",
            [command("(touch forbidden.txt)"), command("env touch forbidden.txt > x")],
            reason="what is forbidden is found wherever it stands",
        ),
        Scenario(
            "rule-learned",
            read,
            "untrusted",
            [command("touch learned.txt"), command("touch learned.txt b.txt")],
            learn,
        ),
        Scenario("rule-learned-escalated", read, "on-request", [command(LEARNED, **escalated)] * 2),
        Scenario("escalate-prefix-rule", read, "on-request", [pushes], "decline"),
        Scenario(
            "escalate-compound",
            read,
            "on-request",
            [command("ls && touch x.txt", **escalated)],
            reason="no rule is offered for a part of what is asked about",
        ),
        Scenario("escalate-full-access", full, "on-request", [command("ls", **escalated)]),
        Scenario(
            "escalate-granular",
            read,
            granular(rules=True, sandbox_approval=False),
            [command("touch c.txt", **escalated)],
            reason=WORDS,
        ),
        Scenario(
            "escalate-granular-allowed",
            read,
            granular(rules=True, sandbox_approval=True),
            [command("touch c.txt", **escalated)],
        ),
        Scenario(
            "denied-granular",
            read,
            granular(rules=True, sandbox_approval=True),
            [command("touch f.txt")],
            reason="the item shows the first attempt too",
        ),
        Scenario(
            "untrusted-compound",
            write,
            "untrusted",
            [command("touch x.txt && mkdir y")],
            "decline",
            reason="no rule is offered for a part of what is asked about",
        ),
        Scenario(
            "untrusted-not-understood",
            write,
            "untrusted",
            [command("echo hi > x.txt")],
            "decline",
            reason="no rule is offered for a shell with a script",
        ),
        Scenario(
            "untrusted-inline-code",
            write,
            "untrusted",
            [command("python3 -c 'print(1)'"), command("env true"), command("bash -c true")],
            "decline",
            reason="no rule is offered for what runs whatever its arguments say",
        ),
        Scenario("untrusted-full-access", full, "untrusted", [command("touch d.txt")]),
    ]


def _matrix() -> list[Scenario]:
    """Every policy with every sandbox, kind of command and answer."""
    kinds = {
        "read": command("cat a.txt"),
        "write": command("touch w.txt"),
        "danger": command("rm -f gone.txt"),
        "escalated": command(
            "touch e.txt", sandbox_permissions="require_escalated", justification="May I?"
        ),
        "script": command("for i in 1 2; do echo $i; done"),
    }
    return [
        Scenario(
            f"matrix-{kind}-{sandbox}-{policy}-{answer}",
            sandbox,
            policy,
            [call],
            answer,
            reason=_reason(kind, sandbox, policy, answer),
        )
        for policy in ("never", "on-request", "untrusted")
        for sandbox in ("read-only", "workspace-write", "danger-full-access")
        for kind, call in kinds.items()
        for answer in ("accept", "decline", "cancel")
        # Nobody is asked in these.
        if answer == "accept" or policy == "untrusted" or kind in ("danger", "escalated")
        if answer == "accept" or policy != "never"
    ]


def _reason(kind: str, sandbox: str, policy: str, answer: str) -> str | None:
    is_full = sandbox == "danger-full-access"
    match kind, policy:
        case "danger", "never":
            return WORDS if is_full else "what nobody may be asked about runs in the sandbox"
        case "danger", _:
            return "the user is told what is dangerous, and offered no rule"
        case "read", "untrusted":
            return "known reads run without a question"
        case "write", "never" | "on-request" if sandbox == "read-only":
            return "Codex shows no item of what its sandbox denied at once, and asks nobody"
        case "write", "untrusted" if sandbox == "read-only" and answer == "accept":
            return "what was accepted runs in the sandbox, and is asked about to leave it"
        case "escalated", "never":
            return "there is nothing to leave" if is_full else WORDS
        case "script", "untrusted":
            return "no rule is offered for a shell with a script"
    return None


def granular(**chosen: bool) -> Any:
    """Make a policy that says kind by kind who is asked."""
    others = {"mcp_elicitations": True, "request_permissions": True, "skill_approval": True}
    return {"granular": {**others, **chosen}}


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
            reason="every model has a plan",
        ),
        Scenario(
            "plan-broken",
            write,
            "never",
            [function("update_plan", plan="x")],
            model="gpt-5.5",
            reason="every model has a plan",
        ),
        Scenario(
            "image-missing",
            write,
            "never",
            [function("view_image", path="none.png")],
            model="gpt-5.5",
            reason=WORDS,
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


SCENARIOS: Sequence[Scenario] = (*_commands(), *_asking(), *_matrix(), *_others())
