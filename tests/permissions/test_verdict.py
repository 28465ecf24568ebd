"""Verdict over a command, as one table: approval policies, kinds of commands, sandbox, rules."""

import itertools
from typing import Any

import pytest

from app_server.permissions.commands.wrappers import read_command, run_by
from app_server.permissions.rules import PrefixRule, Rules
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy
from app_server.permissions.shell.parse import ShellGrammar
from app_server.permissions.verdict import (
    CANNOT_ASK,
    CANNOT_ESCALATE,
    CommandFacts,
    NeedsApproval,
    Refuse,
    Run,
    Verdict,
    may_leave_sandbox,
    unsandboxed_amendment,
    verdict_on,
)
from protocol.turns.policy import AskForApproval, GranularApprovals, GranularAskForApproval
from tests.support.harness import claim

READER = ShellGrammar()
CONFINED = EffectivePolicy(writable=("/work",), network=False)


def granular(*, rules: bool, sandbox: bool) -> AskForApproval:
    """Choose kind by kind."""
    chosen = GranularApprovals(mcp_elicitations=True, rules=rules, sandbox_approval=sandbox)
    return GranularAskForApproval(granular=chosen)


POLICIES: dict[str, AskForApproval] = {
    "never": "never",
    "on-request": "on-request",
    "untrusted": "untrusted",
    "rules": granular(rules=True, sandbox=False),
    "sandbox": granular(rules=False, sandbox=True),
}


def rule(decision: Any, *words: str, why: str | None = None) -> PrefixRule:
    """Make a rule."""
    return PrefixRule(tuple((word,) for word in words), decision, why)


RULES = Rules(
    (
        rule("allow", "touch"),
        rule("allow", "rm"),
        rule("allow", "git", "reset", "--hard"),
        rule("prompt", "mkdir", why="ask me"),
        rule("prompt", "rmdir"),
        rule("forbidden", "npm", why="use yarn"),
        rule("forbidden", "pip", "install"),
    )
)

REMOVES = "it removes files without asking, or whole folders"
DANGER = f"this is known to be dangerous: {REMOVES}"
REFUSED = Refuse(f"this is known to be dangerous, and nobody may be asked: {REMOVES}")
INSIDE, OUTSIDE = Run(sandboxed=True), Run(sandboxed=False)
YARN, PIP = Refuse("use yarn"), Refuse("policy forbids commands starting with `pip install`")
MKDIR = "requires approval: ask me"

# For each kind of command what each policy says of it, in a sandbox.
TABLE: dict[str, dict[str, Verdict]] = {
    "npm i": dict.fromkeys(POLICIES, YARN),
    "ls && npm i": dict.fromkeys(POLICIES, YARN),
    "pip install x": dict.fromkeys(POLICIES, PIP),
    "pip install x > y": dict.fromkeys(POLICIES, PIP),
    "mkdir x": {
        "never": Refuse(CANNOT_ASK),
        "on-request": NeedsApproval(True, MKDIR),
        "untrusted": NeedsApproval(True, MKDIR),
        "rules": NeedsApproval(True, MKDIR),
        "sandbox": Refuse(CANNOT_ASK),
    },
    "touch x && mkdir x": {
        "never": Refuse(CANNOT_ASK),
        "on-request": NeedsApproval(True, MKDIR),
        "untrusted": NeedsApproval(True, MKDIR),
        "rules": NeedsApproval(True, MKDIR),
        "sandbox": Refuse(CANNOT_ASK),
    },
    "touch x": dict.fromkeys(POLICIES, OUTSIDE),
    "touch x; touch y | touch z": dict.fromkeys(POLICIES, OUTSIDE),
    "touch x && ls": dict.fromkeys(POLICIES, INSIDE),
    "ls": dict.fromkeys(POLICIES, INSIDE),
    "cat a | head -1": dict.fromkeys(POLICIES, INSIDE),
    "wc -l x": dict.fromkeys(POLICIES, INSIDE),
    "rm -rf x": {
        "never": INSIDE,
        "on-request": NeedsApproval(True, DANGER),
        "untrusted": NeedsApproval(True, DANGER),
        "rules": NeedsApproval(True, DANGER),
        "sandbox": NeedsApproval(True, DANGER),
    },
    "make": {
        **dict.fromkeys(POLICIES, INSIDE),
        "untrusted": NeedsApproval(True, None, ("make",)),
    },
    "ls > x": {**dict.fromkeys(POLICIES, INSIDE), "untrusted": NeedsApproval(True)},
}

ESCALATED: dict[str, dict[str, Verdict]] = {
    "npm i": dict.fromkeys(POLICIES, YARN),
    "mkdir x": {
        "never": Refuse(CANNOT_ASK),
        "on-request": NeedsApproval(False, MKDIR),
        "untrusted": NeedsApproval(False, MKDIR),
        "rules": NeedsApproval(False, MKDIR),
        "sandbox": Refuse(CANNOT_ASK),
    },
    "touch x": dict.fromkeys(POLICIES, OUTSIDE),
    **{
        command: {
            "never": Refuse(CANNOT_ESCALATE),
            "on-request": NeedsApproval(False, "May I?", amendment),
            "untrusted": NeedsApproval(False, "May I?", amendment),
            "rules": Refuse(CANNOT_ESCALATE),
            "sandbox": NeedsApproval(False, "May I?", amendment),
        }
        for command, amendment in {
            "ls": ("ls",),
            "make": ("make",),
            "touch x && make test": ("make", "test"),
            "ls && make": None,
            "make > x": None,
            "rm -rf x": None,
        }.items()
    },
}

WITHOUT_SANDBOX: dict[str, dict[str, Verdict]] = {
    **{command: TABLE[command] for command in ("npm i", "mkdir x", "touch x", "ls", "make")},
    "rm -rf x": {**TABLE["rm -rf x"], "never": REFUSED},
}


async def decision(
    command: str, policy: str, sandbox_policy: EffectivePolicy = CONFINED, **facts: Any
) -> Verdict:
    """Decide about a command, under the rules of these tests."""
    given = CommandFacts(script=await read_command(READER, command), **facts)
    return verdict_on(given, POLICIES[policy], sandbox_policy, RULES)


@claim("commands:decision")
@pytest.mark.parametrize(("command", "policy"), list(itertools.product(TABLE, POLICIES)))
async def test_in_a_sandbox(command: str, policy: str) -> None:
    assert await decision(command, policy) == TABLE[command][policy]


@pytest.mark.parametrize(("command", "policy"), list(itertools.product(ESCALATED, POLICIES)))
async def test_what_wants_to_leave_the_sandbox(command: str, policy: str) -> None:
    decided = await decision(
        command, policy, sandbox_permissions="require_escalated", justification="May I?"
    )
    assert decided == ESCALATED[command][policy]


@pytest.mark.parametrize(
    ("command", "policy", "permissions"),
    list(itertools.product(WITHOUT_SANDBOX, POLICIES, ["use_default", "require_escalated"])),
)
async def test_without_a_sandbox_there_is_nothing_to_leave(
    command: str, policy: str, permissions: str
) -> None:
    decided = await decision(command, policy, UNRESTRICTED, sandbox_permissions=permissions)
    assert decided == WITHOUT_SANDBOX[command][policy]


async def test_the_question_has_the_justification_where_there_is_no_sandbox_too() -> None:
    facts = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    decided = await decision("make", "untrusted", UNRESTRICTED, **facts)
    assert decided == NeedsApproval(True, "May I?", ("make",))


@claim("commands:shells")
@pytest.mark.parametrize(
    ("shell", "is_users", "is_understood"),
    [
        ("/bin/bash", False, True),
        ("/usr/bin/zsh", False, True),
        ("/opt/mine/bin/bash", True, True),
        ("/opt/mine/bin/bash", False, False),
        ("/work/bash", False, False),
        ("/usr/bin/fish", True, False),
        ("/usr/bin/python3", False, False),
        ("/bin/rm", False, False),
    ],
)
async def test_only_a_shell_makes_of_a_script_what_was_understood(
    shell: str, is_users: bool, is_understood: bool
) -> None:
    for command, trusted in (("ls", INSIDE), ("touch x", OUTSIDE)):
        script = run_by(await read_command(READER, command), shell, is_users=is_users)
        decided = verdict_on(CommandFacts(script=script), "untrusted", CONFINED, RULES)
        assert decided == (trusted if is_understood else NeedsApproval(True))


async def test_what_is_forbidden_is_so_for_any_shell() -> None:
    script = run_by(await read_command(READER, "npm i"), "/opt/fish", is_users=False)
    assert verdict_on(CommandFacts(script=script), "never", CONFINED, RULES) == YARN
    script = run_by(await read_command(READER, "i"), "/usr/bin/npm", is_users=False)
    assert verdict_on(CommandFacts(script=script), "never", CONFINED, RULES) == YARN


async def test_git_in_a_folder_of_others_may_run_what_that_is_set_to() -> None:
    for command in ("ls", "git status"):
        places: list[dict[str, Any]] = [{}, {"is_trusted": True, "is_elsewhere": True}]
        for place in places:
            decided = await decision(command, "untrusted", **place)
            assert (decided == INSIDE) is (command == "ls")
        assert await decision(command, "untrusted", is_trusted=True) == INSIDE
    # No rule lets it out of the sandbox there.
    assert await decision("git reset --hard", "on-request") == OUTSIDE
    assert isinstance(
        await decision("git reset --hard", "on-request", is_elsewhere=True), NeedsApproval
    )


# Rules.


@claim("rules:everywhere")
@pytest.mark.parametrize(
    "command",
    [
        "(npm i)",
        "npm i &",
        "npm i > x",
        "A=1 npm i",
        "echo $(npm i)",
        "if true; then npm i; fi",
        "env A=1 npm i",
        "ls | xargs npm i",
        "find . -exec npm i \\;",
        "sudo npm i",
        "bash -c 'ls; npm i'",
        "eval npm i",
        "/usr/bin/npm i",
        "'n'pm i",
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_is_forbidden_is_so_wherever_it_stands(command: str, policy: str) -> None:
    assert await decision(command, policy) == YARN


@pytest.mark.parametrize(
    "command",
    [
        "touch x > y",
        "(touch x)",
        "touch $x",
        "env touch x",
        "touch *",
        "touch x &",
        "touch x | make",
    ],
)
async def test_a_rule_lets_only_what_was_understood_out_of_the_sandbox(command: str) -> None:
    assert await decision(command, "on-request") == INSIDE


async def test_a_pattern_behind_a_folder_cannot_become_an_option() -> None:
    assert await decision("touch src/*", "never") == OUTSIDE


@claim("rules:danger")
async def test_a_rule_allows_a_dangerous_command_only_if_it_names_the_danger() -> None:
    assert await decision("rm x", "on-request") == OUTSIDE
    assert await decision("rm -rf x", "on-request") == NeedsApproval(True, DANGER)
    assert await decision("git reset --hard", "on-request") == OUTSIDE


async def test_a_rule_without_a_reason_is_named() -> None:
    assert await decision("rmdir x", "on-request") == NeedsApproval(
        True, "requires approval: a rule for `rmdir`"
    )


# What is offered to be remembered.


@claim("commands:amendment")
@pytest.mark.parametrize(
    ("command", "wanted", "offered"),
    [
        ("make test", None, ("make", "test")),
        ("make test", ("make", "test"), ("make", "test")),
        ("cargo build --release", ("cargo", "build"), ("cargo", "build")),
        ("ls && cargo build | head", None, ("cargo", "build")),
        ("touch x; cargo build", None, ("cargo", "build")),
        ("cargo build", ("cargo",), ("cargo", "build")),
        ("cargo build", ("npm",), ("cargo", "build")),
        ("cargo build", ("cargo", "build", "x"), ("cargo", "build")),
        ("cargo build", (), ("cargo", "build")),
        ("python3 run.py -v", None, ("python3", "run.py", "-v")),
        ("python3 -m pytest -q", ("python3", "-m", "pytest"), ("python3", "-m", "pytest")),
        ("python3 -m pytest -q", ("python3",), ("python3", "-m", "pytest", "-q")),
        ("node run.js", ("node",), ("node", "run.js")),
        ("git push origin", ("git", "push"), ("git", "push")),
        ("git push origin", ("git",), ("git", "push", "origin")),
        # Two parts would be asked about.
        ("make && cargo build", None, None),
        ("make | xargs cargo", None, None),
        # What runs whatever its arguments say.
        ("python3 -c 'print(1)'", None, None),
        ("python3 - x", None, None),
        ("python3", None, None),
        ("python3.11 -c 1", None, None),
        ("node -e 1", None, None),
        ("perl -e 1", None, None),
        ("bash -c 'make'", None, None),
        ("bash -lc make", ("bash",), None),
        ("bash", None, None),
        ("eval 'make'", None, None),
        ("env make", None, None),
        ("env A=1 make", ("env",), None),
        ("xargs make", None, None),
        ("find . -exec make \\;", None, None),
        ("nohup make", None, None),
        ("time make", None, None),
        ("sudo make", None, None),
        ("git -c a=b push", None, None),
        ("git -C x push", ("git",), None),
        ("awk 'BEGIN{system(\"x\")}'", None, None),
        # Dangers.
        ("rm -rf x", None, None),
        ("rm -rf x", ("rm",), None),
        ("git push --force", ("git", "push"), None),
        # What was not understood, or is not known.
        ("make > x", None, None),
        ("make $x", None, None),
        ("make src/*", None, None),
        ("make " + "x" * 5_000, None, None),
        ("make" + " x" * 64, None, None),
    ],
)
async def test_a_rule_is_offered_for_one_narrow_command(
    command: str, wanted: tuple[str, ...] | None, offered: tuple[str, ...] | None
) -> None:
    decided = await decision(command, "untrusted", prefix_rule=wanted)
    assert isinstance(decided, NeedsApproval)
    assert decided.amendment == offered
    facts = CommandFacts(script=await read_command(READER, command), prefix_rule=wanted)
    outside = unsandboxed_amendment(facts, RULES)
    assert outside == (offered if not command.startswith("ls") else None)


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        ("never", False),
        ("on-request", True),
        ("untrusted", True),
        ("rules", False),
        ("sandbox", True),
    ],
)
def test_who_may_be_asked_to_leave_the_sandbox(policy: str, may: bool) -> None:
    assert may_leave_sandbox(POLICIES[policy]) is may
