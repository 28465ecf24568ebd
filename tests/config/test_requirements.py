"""requirements: what an administrator demands, from the file to what threads and servers may do."""

import logging
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.config.requirements import (
    Requirements,
    ServerIdentity,
    read_requirements,
    requirements_of,
)
from app_server.config.values import Config, ConfigError
from app_server.mcp.catalog.tables import parse_server
from app_server.server.settings import Settings as ServerSettings
from app_server.sessions.managed_policy import SettingNotAllowed, refuse_overrides, with_required
from app_server.sessions.settings import Overrides
from protocol.log.rollout import Settings
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    GranularApprovals,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import REQUIREMENTS, WireClient, claim, serve, stdio_server
from tests.support.large import Case, made
from tests.support.mcp_peers.calls import steps_until_settled

FIXED = Requirements(
    source="/r.toml", approval_policies=["on-request"], sandbox_modes=["read-only"]
)


def demand(home: Path, text: str) -> Path:
    file = home / REQUIREMENTS
    file.write_text(text)
    return file


def granular(**approvals: bool) -> GranularAskForApproval:
    asked = {"mcp_elicitations": True, "rules": True, "sandbox_approval": True, **approvals}
    return GranularAskForApproval(granular=GranularApprovals(**asked))


# The file.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (
            'allowed_approval_policies = ["never", "untrusted"]',
            {"approval_policies": ["never", "untrusted"]},
        ),
        (
            'allowed_approval_policies = ["on-failure", "on-request", '
            "{ granular = { rules = false } }]",
            {"approval_policies": ["on-request", granular(rules=False)]},
        ),
        (
            'allowed_sandbox_modes = ["workspace-write", "read-only", "external-sandbox"]',
            {"sandbox_modes": ["workspace-write", "read-only", "external-sandbox"]},
        ),
        ("[mcp_servers]", {"servers": {}}),
        (
            '[mcp_servers.a.identity]\ncommand = "x"\n[mcp_servers.b.identity]\nurl = "y"',
            {"servers": {"a": ServerIdentity(command="x"), "b": ServerIdentity(url="y")}},
        ),
        (
            "rules = 1\n[features]\nx = true\n[mcp_servers.a]\nargs = []\n"
            '[mcp_servers.a.identity]\ncommand = "x"\nurl = "y"\nargs = []',
            {
                "servers": {"a": ServerIdentity(command="x")},
                "unenforced": (
                    "rules",
                    "features",
                    "mcp_servers.a.args",
                    "mcp_servers.a.identity.url",
                    "mcp_servers.a.identity.args",
                ),
            },
        ),
    ],
)
def test_demands_are_read(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    file = demand(tmp_path, text)
    demanded = requirements_of(Config({}, requirements=read_requirements(file)))
    assert demanded == Requirements(**(found and {"source": str(file), **found}))


def test_without_a_file_nothing_is_demanded(tmp_path: Path) -> None:
    demanded = read_requirements(tmp_path / REQUIREMENTS)
    assert requirements_of(Config({}, requirements=demanded)) == Requirements()
    assert not Requirements().demands_anything
    assert Requirements(servers={}).demands_anything


def test_the_file_is_that_of_the_machine() -> None:
    settings = ServerSettings(home=Path("home"), listen=())
    assert settings.requirements == Path("/etc/codex/requirements.toml")


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("x\n", ":1:2: Expected '=' after a key in a key/value pair"),
        (
            'allowed_approval_policies = "never"',
            ':1:29: invalid type: string "never", expected a sequence',
        ),
        (
            "allowed_approval_policies = []",
            ":1:29: field `allowed_approval_policies` cannot be empty",
        ),
        (
            'allowed_approval_policies = ["x"]',
            ":1:29: unknown variant `x`, expected one of `untrusted`, `on-failure`, `on-request`, "
            "`granular`, `never`",
        ),
        (
            'allowed_approval_policies = ["granular"]',
            ":1:29: `granular` needs a table: { granular = { ... } }",
        ),
        (
            "allowed_approval_policies = [{ never = true }]",
            ":1:29: expected a table with the key `granular` alone",
        ),
        (
            "allowed_approval_policies = [{ granular = { rules = 1 } }]",
            ":1:1: invalid type: integer `1`, expected a boolean",
        ),
        (
            'allowed_sandbox_modes = ["x", "read-only"]',
            ":1:25: unknown variant `x`, expected one of `read-only`, `workspace-write`, "
            "`danger-full-access`, `external-sandbox`",
        ),
        (
            'allowed_sandbox_modes = ["workspace-write"]',
            ":1:25: `allowed_sandbox_modes` must include `read-only`",
        ),
        ('mcp_servers = "x"', ":1:15: invalid type: string, expected a map"),
        ("[mcp_servers.a]", ":1:1: missing field `identity`"),
        ("[mcp_servers.a.identity]", ":1:1: an identity needs `command` or `url`"),
        (
            "[mcp_servers.a.identity]\ncommand = 5",
            ":2:11: invalid type: integer, expected a string",
        ),
        ('[mcp_servers.a]\nidentity = "x"', ":2:12: invalid type: string, expected a map"),
    ],
)
def test_demands_that_make_no_sense_are_named(tmp_path: Path, text: str, detail: str) -> None:
    file = demand(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_requirements(file)
    assert str(caught.value) == f"failed to parse requirements layer {file}{detail}"


@pytest.mark.parametrize(
    ("content", "detail"),
    [(lambda: b"#" * (1024 * 1024 + 1), "larger than 1048576 bytes"), (b"# \xff", "not UTF-8")],
)
def test_the_file_has_the_bounds_of_the_configuration(
    tmp_path: Path, content: Case[bytes], detail: str
) -> None:
    file = tmp_path / REQUIREMENTS
    file.write_bytes(made(content))
    with pytest.raises(ConfigError) as caught:
        read_requirements(file)
    assert str(caught.value) == f"failed to parse requirements layer {file}: {detail}"


def test_a_warning_names_so_many_keys() -> None:
    keys = ["x" * 100, *(f"k{number}" for number in range(29))]
    (warning,) = Requirements(source="/r.toml", unenforced=keys).warnings
    named = ", ".join(["`" + "x" * 80 + "…`", *(f"`k{number}`" for number in range(19))])
    assert warning == f"not enforced by this server: {named} and 10 more (set by /r.toml)"


# What follows from demands.


@pytest.mark.parametrize(
    ("demanded", "configured", "runs"),
    [
        (None, {"command": "x"}, True),
        ({}, {"command": "x"}, False),
        ({"b": ServerIdentity(command="x")}, {"command": "x"}, False),
        ({"a": ServerIdentity(command="x")}, {"command": "x"}, True),
        ({"a": ServerIdentity(command="x")}, {"command": "/bin/x"}, False),
        ({"a": ServerIdentity(command="x")}, {"url": "x"}, False),
        ({"a": ServerIdentity(url="http://h/")}, {"url": "http://h/"}, True),
        ({"a": ServerIdentity(url="http://h/")}, {"url": "http://h"}, False),
        ({"a": ServerIdentity(url="x")}, {"command": "x"}, False),
    ],
)
def test_a_server_runs_if_it_is_what_is_listed(
    demanded: Any, configured: dict[str, str], runs: bool
) -> None:
    assert parse_server("a", configured, demanded).allowed is runs


def settings(approval_policy: Any = "on-request", sandbox: SandboxPolicy | None = None) -> Settings:
    return Settings(
        model="m",
        model_provider="p",
        cwd="/w",
        approval_policy=approval_policy,
        sandbox_policy=sandbox or ReadOnlySandboxPolicy(),
    )


NEVER = (
    "invalid value for `approval_policy`: `Never` is not in the allowed set [OnRequest] "
    "(set by /r.toml)"
)
FULL = (
    "invalid value for `sandbox_mode`: `DangerFullAccess` is not in the allowed set [ReadOnly] "
    "(set by /r.toml)"
)
INSTEAD = (
    "Configured value for `{}` is disallowed by requirements; falling back to required value {}. "
    "Details: {}"
)
INSTEAD_OF_NEVER = INSTEAD.format("approval_policy", "OnRequest", NEVER)
INSTEAD_OF_FULL = INSTEAD.format("sandbox_mode", "ReadOnly", FULL)


@pytest.mark.parametrize(
    ("before", "requirements", "after", "said"),
    [
        (settings("never", DangerFullAccessSandboxPolicy()), Requirements(), None, []),
        (settings(), FIXED, None, []),
        (settings(sandbox=ReadOnlySandboxPolicy(network_access=True)), FIXED, None, []),
        (settings("never"), FIXED, settings(), [INSTEAD_OF_NEVER]),
        (
            settings("never", DangerFullAccessSandboxPolicy()),
            FIXED,
            settings(),
            [INSTEAD_OF_NEVER, INSTEAD_OF_FULL],
        ),
        (
            settings(granular()),
            Requirements("/r.toml", approval_policies=[granular(rules=False), "never"]),
            settings(granular(rules=False)),
            [
                INSTEAD.format(
                    "approval_policy",
                    "Granular",
                    "invalid value for `approval_policy`: `Granular` is not in the allowed set "
                    "[Granular, Never] (set by /r.toml)",
                )
            ],
        ),
        (settings(granular()), Requirements(approval_policies=[granular()]), None, []),
        (
            settings(sandbox=WorkspaceWriteSandboxPolicy()),
            Requirements(sandbox_modes=["read-only", "workspace-write"]),
            None,
            [],
        ),
        (
            settings(sandbox=ExternalSandboxPolicy()),
            Requirements(sandbox_modes=["read-only", "external-sandbox"]),
            None,
            [],
        ),
    ],
)
def test_settings_that_are_not_allowed_are_replaced(
    before: Settings, requirements: Requirements, after: Settings | None, said: list[str]
) -> None:
    assert with_required(before, requirements) == (after or before, said)


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        (Overrides(approval_policy="never"), NEVER),
        (Overrides(sandbox_policy=DangerFullAccessSandboxPolicy()), FULL),
        (Overrides(sandbox_mode="danger-full-access"), FULL),
        (Overrides(model="other"), None),
    ],
)
def test_choices_that_are_not_allowed_are_refused(
    overrides: Overrides, refusal: str | None
) -> None:
    chosen = settings("never", DangerFullAccessSandboxPolicy())
    found = None
    try:
        refuse_overrides(overrides, chosen, FIXED)
    except SettingNotAllowed as exc:
        found = str(exc)
    assert found == refusal


# On the wire.

THREE = (
    stdio_server("good")
    + stdio_server("unlisted", required="true")
    + stdio_server("other")
    + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp"\n'
)


def listing(name: str, command: str) -> str:
    return f"[mcp_servers.{name}.identity]\ncommand = {command!r}\n"


def command_of(server: str) -> str:
    return server.split('command = "')[1].split('"')[0]


async def statuses(client: WireClient, thread_id: str | None = None) -> dict[str, Any]:
    params = {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
    found = await client.call("mcpServerStatus/list", params)
    return {
        entry["name"]: (entry["runtimeStatus"], bool(entry["tools"]), entry["toolsError"])
        for entry in found["data"]
    }


@claim("requirements:servers")
async def test_only_servers_that_are_listed_run(tmp_path: Path) -> None:
    demand(tmp_path, listing("good", command_of(THREE)) + listing("other", "something else"))
    off = ("disabled", False, None)
    async with serve(tmp_path, config=THREE) as served, served.client() as client:
        more = {"mcp_servers.more.command": command_of(THREE)}
        thread_id = await client.start_thread(config=more)
        assert await steps_until_settled(client, "good") == {
            "good": [("starting", None), ("ready", None)]
        }
        assert await statuses(client, thread_id) == {
            "good": ("connected", True, None),
            **dict.fromkeys(("more", "other", "unlisted", "web"), off),
        }
        call = {"threadId": thread_id, "server": "unlisted", "tool": "plain"}
        refusals = [
            await client.refusal("mcpServer/tool/call", call),
            await client.refusal("mcpServer/resource/read", {"server": "other", "uri": "mem://a"}),
        ]
        assert [(error.code, error.message) for error in refusals] == [
            (-32603, "unknown MCP server 'unlisted'"),
            (-32603, "unknown MCP server 'other'"),
        ]
        assert await statuses(client) == {
            "good": (None, True, None),
            **dict.fromkeys(("other", "unlisted", "web"), (None, False, None)),
        }


@claim("requirements:servers")
@pytest.mark.parametrize("of_thread", [False, True])
async def test_a_server_that_may_not_run_is_not_signed_in_to(
    tmp_path: Path, of_thread: bool
) -> None:
    demand(tmp_path, "[mcp_servers]")
    async with serve(tmp_path, config=THREE) as served, served.client() as client:
        thread_id = await client.start_thread() if of_thread else None
        error = await client.refusal(
            "mcpServer/oauth/login", {"name": "web", "threadId": thread_id}
        )
    assert (error.code, error.message, error.data) == (
        -32603,
        "failed to resolve MCP server runtime: the MCP server is disabled by managed requirements",
        {"code": "mcpServerNotAllowed", "name": "web"},
    )


@claim("requirements:servers")
async def test_a_reload_reads_the_demands_again(tmp_path: Path) -> None:
    async with serve(tmp_path, config=stdio_server("good")) as served, served.client() as client:
        thread_id = await client.start_thread()
        await steps_until_settled(client, "good")
        demand(tmp_path, "[mcp_servers]")
        await client.call("config/mcpServer/reload")
        assert await statuses(client, thread_id) == {"good": ("disabled", False, None)}
        demand(tmp_path, listing("good", command_of(THREE)))
        await client.call("config/mcpServer/reload")
        assert await steps_until_settled(client, "good") == {
            "good": [("starting", None), ("ready", None)]
        }
        file = demand(tmp_path, "[mcp_servers.good]")
        error = await client.refusal("config/mcpServer/reload")
        assert (error.code, error.message) == (
            -32603,
            f"failed to refresh MCP servers: failed to parse requirements layer {file}:1:1: "
            "missing field `identity`",
        )
        assert await statuses(client, thread_id) == {"good": ("connected", True, None)}


@claim("requirements:settings")
@pytest.mark.parametrize("by_request", [False, True])
async def test_a_thread_starts_with_what_is_allowed_and_its_client_gets_a_warning(
    tmp_path: Path, by_request: bool
) -> None:
    file = demand(
        tmp_path,
        'allowed_approval_policies = ["on-request"]\nallowed_sandbox_modes = ["read-only"]',
    )
    wanted = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
    config = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    async with (
        serve(tmp_path, config="" if by_request else config) as served,
        served.client() as client,
    ):
        started = await client.call("thread/start", wanted if by_request else {})
        thread_id = started["thread"]["id"]
        messages = await client.until("warning")
        messages += await client.until("warning")
        read = await client.call("configRequirements/read")
    assert (started["approvalPolicy"], started["sandbox"]["type"]) == ("on-request", "readOnly")
    texts = [text.replace("/r.toml", str(file)) for text in (INSTEAD_OF_NEVER, INSTEAD_OF_FULL)]
    told = [(m["method"], m["params"]) for m in messages if m["method"].lower().endswith("warning")]
    assert told == [
        message
        for text in texts
        for message in (
            ("configWarning", {"summary": text, "details": None}),
            ("warning", {"threadId": thread_id, "message": text}),
        )
    ]
    shown = {name: value for name, value in read["requirements"].items() if value is not None}
    assert shown == {
        "allowedApprovalPolicies": ["on-request"],
        "allowedSandboxModes": ["read-only"],
    }


@claim("requirements:settings")
async def test_a_turn_cannot_choose_what_is_not_allowed(tmp_path: Path) -> None:
    file = demand(
        tmp_path,
        'allowed_approval_policies = ["on-request"]\nallowed_sandbox_modes = ["read-only"]',
    )
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        refusals = [
            await client.refusal("turn/start", {**start, "approvalPolicy": "never"}),
            await client.refusal(
                "turn/start", {**start, "sandboxPolicy": {"type": "dangerFullAccess"}}
            ),
        ]
        turn = await client.turn(thread_id, "hi", approvalPolicy="on-request")
    texts = [text.replace("/r.toml", str(file)) for text in (NEVER, FULL)]
    assert [(error.code, error.message, error.data) for error in refusals] == [
        (
            -32600,
            f"invalid thread settings override: {text}",
            {"code": "settingNotAllowed", "detail": text},
        )
        for text in texts
    ]
    assert turn["status"] == "completed"


@claim("requirements:settings")
@pytest.mark.parametrize("restarted", [False, True])
async def test_settings_of_before_do_not_outlive_a_demand(tmp_path: Path, restarted: bool) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy="never", sandbox="workspace-write")
        await client.turn(thread_id, "one")
        file = demand(tmp_path, 'allowed_approval_policies = ["on-request"]')
        text = INSTEAD_OF_NEVER.replace("/r.toml", str(file))
        if not restarted:
            await client.turn(thread_id, "two")
            resumed = await client.call("thread/resume", {"threadId": thread_id})
    if restarted:
        async with serve(tmp_path) as served, served.client() as client:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            warning = await client.wait_for("configWarning")
            assert warning["params"]["summary"] == text
            warning = await client.wait_for("warning")
            assert warning["params"] == {"threadId": thread_id, "message": text}
    assert (resumed["approvalPolicy"], resumed["sandbox"]["type"]) == (
        "on-request",
        "workspaceWrite",
    )


@claim("requirements:settings")
async def test_a_loaded_thread_gets_a_warning_of_what_a_new_demand_changes(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy="never")
        file = demand(tmp_path, 'allowed_approval_policies = ["on-request"]')
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        await client.call("turn/start", start)
        updated = await client.wait_for("thread/settings/updated")
        assert updated["params"]["threadSettings"]["approvalPolicy"] == "on-request"
        warning = await client.wait_for("warning")
        assert warning["params"]["message"] == INSTEAD_OF_NEVER.replace("/r.toml", str(file))
        await client.wait_for("turn/completed")


@claim("requirements:unenforced")
async def test_demands_that_nobody_enforces_are_logged_and_sent_as_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = demand(tmp_path, "bogus = 1\n[features]\nx = true\n")
    text = f"not enforced by this server: `bogus`, `features` (set by {file})"
    async with serve(tmp_path) as served, served.client() as client:
        logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        thread_id = (await client.call("thread/start", {}))["thread"]["id"]
        told = [
            (await client.wait_for("configWarning"))["params"],
            (await client.wait_for("warning"))["params"],
        ]
        assert (await client.call("configRequirements/read"))["requirements"] is None
    assert logged == [text]
    assert told == [
        {"summary": text, "details": None},
        {"threadId": thread_id, "message": text},
    ]


@claim("requirements:broken")
async def test_nothing_runs_until_a_broken_file_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    file = demand(tmp_path, "= 1")
    detail = f"failed to parse requirements layer {file}:1:1: Invalid statement"
    async with serve(tmp_path) as served, served.client() as client:
        await client.wait_for("configWarning")
        logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        refusals = [
            await client.refusal("configRequirements/read"),
            await client.refusal("thread/start", {}),
            await client.refusal("thread/resume", {"threadId": thread_id}),
            await client.refusal("mcpServerStatus/list", {}),
        ]
        file.unlink()
        await client.call("thread/resume", {"threadId": thread_id})
        await anyio.to_thread.run_sync(file.write_text, "= 1")
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        refusals.append(await client.refusal("turn/start", start))
    assert logged == [
        f"The configuration cannot be used; requests that need it are refused. {detail}"
    ]
    load = (-32600, f"failed to load configuration: {detail}")
    assert [(error.code, error.message) for error in refusals] == [
        (-32603, f"failed to read configuration layers: {detail}"),
        *[load] * 4,
    ]
    assert {error.data["code"] for error in refusals} == {"configInvalid"}
