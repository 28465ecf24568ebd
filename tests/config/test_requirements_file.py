"""requirements: the file of an administrator, and what follows from it for settings."""

from pathlib import Path
from typing import Any

import pytest

from app_server.config.requirements import (
    Requirements,
    ServerIdentity,
    read_requirements,
    requirements_of,
)
from app_server.config.values import Config, ConfigError
from app_server.server.settings import Settings as ServerSettings
from app_server.sessions.settings import (
    Overrides,
    SettingNotAllowed,
    refuse_overrides,
    with_required,
)
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
from tests.support.harness import REQUIREMENTS
from tests.support.large import Case, made
from tests.support.requirements import (
    FULL,
    INSTEAD,
    INSTEAD_OF_FULL,
    INSTEAD_OF_NEVER,
    NEVER,
    demand,
)

FIXED = Requirements(
    source="/r.toml", approval_policies=["on-request"], sandbox_modes=["read-only"]
)


def granular(**approvals: bool) -> GranularAskForApproval:
    asked = {"mcp_elicitations": True, "rules": True, "sandbox_approval": True, **approvals}
    return GranularAskForApproval(granular=GranularApprovals(**asked))


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


def settings(approval_policy: Any = "on-request", sandbox: SandboxPolicy | None = None) -> Settings:
    return Settings(
        model="m",
        model_provider="p",
        cwd="/w",
        approval_policy=approval_policy,
        sandbox_policy=sandbox or ReadOnlySandboxPolicy(),
    )


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
