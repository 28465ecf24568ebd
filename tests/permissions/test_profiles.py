"""Permission profiles of the configuration: what is read, what is refused, what can be reached."""

import os
import tomllib
from pathlib import Path

import pytest

from app_server.config.values import Config, ConfigError
from app_server.permissions.network import NetworkPolicy, policy_of, stored
from app_server.permissions.profiles import profile_names, read_profile
from app_server.permissions.sandbox.paths import TooMuchToMatch, matches, real_pattern
from app_server.permissions.sandbox.policy import (
    MINIMAL,
    EffectivePolicy,
    Ruling,
    effective_policy_of,
    effective_policy_of_profile,
    read_only,
    resolved,
)
from app_server.permissions.sandbox.roots import MachinePaths
from protocol.log.rollout import Settings, StoredNetwork, StoredProfile
from protocol.turns.policy import (
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import claim
from tests.support.host.sandboxes import make_victim, run_confined

PLACES = MachinePaths("/home/u/.server", "/home/u", "/var/t", ("/home/u/.ssh", "/home/u/.netrc"))
ALL = """
[permissions.base]
extends = ":workspace"
[permissions.base.filesystem]
"/opt" = "write"
"~/secret" = "deny"
":tmpdir" = "deny"
[permissions.child]
extends = "base"
[permissions.child.filesystem]
"~/.ssh" = "read"
[permissions.child.network]
enabled = true
[permissions.closed.filesystem]
":minimal" = "read"
"/data/**" = "read"
glob_scan_max_depth = 3
"/data/*.key" = "deny"
[permissions.closed.filesystem.":workspace_roots"]
"." = "write"
"docs" = "read"
"**/*.env" = "deny"
[permissions.none]
[permissions.looks]
extends = ":read-only"
"""


def config(text: str = ALL) -> Config:
    return Config(tomllib.loads(text))


def profile(name: str, text: str = ALL) -> StoredProfile:
    return read_profile(config(text), name, "/home/u")


@pytest.mark.parametrize(
    ("name", "extends", "policy"),
    [
        (
            "base",
            ":workspace",
            WorkspaceWriteSandboxPolicy(writable_roots=["/opt"], exclude_tmpdir_env_var=True),
        ),
        (
            "child",
            "base",
            WorkspaceWriteSandboxPolicy(
                writable_roots=["/opt"], exclude_tmpdir_env_var=True, network_access=True
            ),
        ),
        (
            "closed",
            None,
            WorkspaceWriteSandboxPolicy(exclude_tmpdir_env_var=True, exclude_slash_tmp=True),
        ),
        ("none", None, ReadOnlySandboxPolicy()),
        ("looks", ":read-only", ReadOnlySandboxPolicy()),
    ],
)
@claim("permissions:own")
def test_what_clients_get_of_a_profile(
    name: str, extends: str | None, policy: SandboxPolicy
) -> None:
    found = profile(name)
    assert (found.id, found.extends, found.sandbox_policy) == (name, extends, policy)
    assert profile_names(config()) == ["base", "child", "closed", "none", "looks"]


@claim("permissions:own")
def test_what_a_profile_lets_be_reached() -> None:
    protected = tuple(
        f"{root}/{name}" for root in ("/work", "/opt") for name in (".git", ".codex", ".agents")
    )
    child = effective_policy_of_profile(profile("child"), ["/work"], PLACES)
    assert (child.readable, child.network) == (None, True)
    assert child.writable == ("/work", "/opt", "/tmp")
    assert child.protected == ("/home/u/.server", *protected)
    # What a profile names may be read, though it is hidden from others.
    assert {*child.denied} == {"/home/u/.netrc", "/home/u/secret", "/var/t"}
    closed = effective_policy_of_profile(profile("closed"), ["/a", "/b"], PLACES)
    assert closed.readable == (*MINIMAL, "/data", "/a/docs", "/b/docs")
    assert closed.writable == ("/a", "/b")
    assert closed.denied_patterns == ("/data/*.key", "/a/**/*.env", "/b/**/*.env")
    assert closed.access("/a/docs/x") == "read"
    assert closed.access("/a/x") == "write"
    assert closed.access("/home/u/x") == "none"
    assert closed.access("/a/deep/down/.env") == "none"
    nothing = effective_policy_of_profile(profile("none"), ["/work"], PLACES)
    assert (nothing.readable, nothing.writable) == ((), ())
    assert nothing.access("/etc/passwd") == "none"


@claim("permissions:own")
def test_a_profile_holds_until_another_policy_is_chosen() -> None:
    chosen = profile("closed")
    settings = Settings(
        model="m",
        model_provider="p",
        cwd="/work",
        approval_policy="never",
        sandbox_policy=chosen.sandbox_policy,
        profile=chosen,
    )
    assert effective_policy_of(settings, PLACES) == effective_policy_of_profile(
        chosen, ["/work"], PLACES
    )
    stored = Settings.model_validate_json(settings.model_dump_json(by_alias=True))
    assert stored == settings
    other = settings.model_copy(update={"sandbox_policy": ReadOnlySandboxPolicy()})
    assert other.profile_in_force is None
    assert effective_policy_of(other, PLACES).readable is None
    # Where nothing may be written, what is hidden stays hidden.
    closed = effective_policy_of_profile(read_only(chosen, network=True), ["/work"], PLACES)
    assert (closed.writable, closed.network) == ((), False)
    assert closed.access("/work/a/.env") == "none"
    assert closed.access("/work/a") == "read"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[permissions.b]", "default_permissions refers to undefined profile `a`"),
        (
            '[permissions.a]\nextends = "a"',
            "permissions profile inheritance cycle detected: a -> a",
        ),
        (
            '[permissions.a]\nextends = "b"',
            "permissions profile `a` extends undefined profile `b`",
        ),
        (
            '[permissions.a]\nextends = ":danger-full-access"',
            "permissions profile `a` cannot extend unsupported built-in profile "
            "`:danger-full-access`",
        ),
        (
            '[permissions.a]\n[permissions.":b"]',
            "permissions profile `:b` uses a reserved built-in profile prefix\n"
            "in `permissions.:b`\n",
        ),
        (
            '[permissions.a.filesystem]\n"relative" = "read"',
            "filesystem path `relative` must be absolute, use `~/...`, or start with `:`\n"
            "in `permissions.a.filesystem.relative`\n",
        ),
        (
            '[permissions.a.filesystem]\n":bogus" = "deny"',
            "there is no special path `:bogus`\nin `permissions.a.filesystem.:bogus`\n",
        ),
        (
            '[permissions.a.filesystem]\n"/a/*.x" = "read"',
            "filesystem glob path `/a/*.x` only supports `deny` access; use an exact path or "
            "trailing `/**` for `read` subtree access\nin `permissions.a.filesystem./a/*.x`\n",
        ),
        (
            '[permissions.a.filesystem]\n"/a/[b]" = "deny"',
            "filesystem glob path `/a/[b]`: only `*`, `**` and `?` are supported in a pattern\n"
            "in `permissions.a.filesystem./a/[b]`\n",
        ),
        (
            '[permissions.a.filesystem.":workspace_roots"]\n"../x" = "write"',
            "filesystem subpath `../x` must be a descendant path without `.` or `..` components\n"
            "in `permissions.a.filesystem.:workspace_roots.../x`\n",
        ),
        (
            '[permissions.a.filesystem."/opt"]\n"x" = "write"',
            "only `:workspace_roots` can have a table of paths below it\n"
            "in `permissions.a.filesystem./opt`\n",
        ),
        (
            "[permissions.a.network]\nenabled = true\nallowed_domains = []",
            "`allowed_domains` is not supported of the network of commands\n"
            "in `permissions.a.network.allowed_domains`\n",
        ),
    ],
)
@claim("permissions:own")
def test_what_makes_no_sense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        profile("a", text)
    assert str(refused.value) == problem


NETWORKS = """
[permissions.base]
extends = ":workspace"
[permissions.base.network]
enabled = true
domains = {"a.org" = "allow", "b.org" = "allow"}
[permissions.child]
extends = "base"
[permissions.child.network]
mode = "limited"
domains = {"b.org" = "deny"}
[permissions.off]
extends = "child"
[permissions.off.network]
enabled = false
"""


@claim("network:proxy")
def test_a_profile_that_restricts_its_network_has_it_through_the_proxy_alone() -> None:
    child = profile("child", NETWORKS)
    assert not child.network
    assert child.proxied == StoredNetwork(allowed=["a.org"], denied=["b.org"], limited=True)
    assert child.sandbox_policy == WorkspaceWriteSandboxPolicy(network_access=True)
    policy = NetworkPolicy(allowed=("a.org",), denied=("b.org",), is_limited=True)
    sandbox_policy = effective_policy_of_profile(child, ["/work"], PLACES)
    assert (sandbox_policy.network, sandbox_policy.proxy) == (False, policy)
    off = profile("off", NETWORKS)
    assert (off.network, off.proxied) == (False, None)
    assert off.sandbox_policy == WorkspaceWriteSandboxPolicy()


def test_who_writes_nothing_keeps_the_proxy_unless_there_is_to_be_no_network() -> None:
    child = profile("child", NETWORKS)
    narrowed = read_only(child, network=True)
    assert (narrowed.network, narrowed.proxied) == (False, child.proxied)
    assert narrowed.sandbox_policy == ReadOnlySandboxPolicy(network_access=True)
    narrowed = read_only(child, network=False)
    assert (narrowed.network, narrowed.proxied) == (False, None)
    assert narrowed.sandbox_policy == ReadOnlySandboxPolicy()


def test_what_is_stored_of_a_network_is_what_comes_back() -> None:
    for policy in (
        NetworkPolicy(),
        NetworkPolicy(("a",), ("b",), is_limited=True, reaches_local=True, has_socks=False),
    ):
        assert policy_of(stored(policy)) == policy


def test_bounds_of_profiles() -> None:
    many = "\n".join(f'"/p{number}" = "read"' for number in range(513))
    with pytest.raises(ConfigError, match="more than 512 entries"):
        profile("a", f"[permissions.a.filesystem]\n{many}")
    chain = "\n".join(f'[permissions.p{n}]\nextends = "p{n + 1}"' for n in range(20))
    with pytest.raises(ConfigError, match="more than 16 profiles away from its last"):
        profile("p0", chain + "\n[permissions.p20]")


def test_what_patterns_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    for name in ("a.env", "sub/b.ENV", "sub/deep/c.env", "sub/env", "sub/.env.txt", "x/y.key"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "link").symlink_to(root / "sub")
    expected = {
        "**/*.env": ["a.env", "sub/b.ENV", "sub/deep/c.env"],
        "*.env": ["a.env"],
        "sub/*": ["sub/.env.txt", "sub/b.ENV", "sub/deep", "sub/env"],
        "sub/???": ["sub/env"],
        "link/*.env": ["sub/b.ENV"],
    }
    for pattern, names in expected.items():
        found = matches(real_pattern(f"{root}/{pattern}"))
        assert sorted(found) == [f"{root}/{name}" for name in names]
    assert len(matches(f"{root}/**")) == 10
    assert matches(f"{root}/**/*.env", depth=1) == [f"{root}/a.env"]
    sandbox_policy = EffectivePolicy(writable=(str(root),), denied_patterns=(f"{root}/link/*.env",))
    ruling = Ruling(resolved(sandbox_policy))
    assert ruling.access(f"{root}/sub/B.env") == "none"
    assert ruling.access(f"{root}/a.env") == "write"
    with pytest.raises(TooMuchToMatch, match="matches more than 2 files"):
        matches(f"{root}/**/*.env", max_matches=2)
    with pytest.raises(TooMuchToMatch, match="has more than 3 files to look at"):
        matches(f"{root}/**/*.none", max_entries=3)


BELOW = """
[permissions.below]
extends = ":workspace"
[permissions.below.filesystem.":workspace_roots"]
"docs" = "read"
"docs/made" = "write"
"""


@claim("permissions:own")
def test_what_is_only_read_in_a_folder_to_write_in_stays_so_where_everything_is_read() -> None:
    sandbox_policy = effective_policy_of_profile(profile("below", BELOW), ["/work"], PLACES)
    assert sandbox_policy.readable is None
    paths = ("/work/a", "/work/docs", "/work/docs/a", "/work/docs/made/a", "/docs")
    access = [sandbox_policy.access(path) for path in paths]
    assert access == ["write", "read", "read", "write", "read"]


@pytest.mark.process
@claim("permissions:own")
async def test_a_profile_holds_for_commands(tmp_path: Path) -> None:
    victim = make_victim(tmp_path / "machine")
    (victim.work / "docs").mkdir()
    (victim.work / "sub").mkdir()
    (victim.work / "sub" / "x.env").write_text("secret")
    sandbox_policy = resolved(
        effective_policy_of_profile(profile("closed"), [str(victim.work)], victim.machine_paths)
    )
    script = (
        "cat sub/x.env; echo x >docs/new; cat ../outside/file.txt; ls /home /root; cat ~/.netrc;"
        " echo works >made && cat made && ls .git && ls /"
    )
    ended = await run_confined(
        ("/bin/sh", "-c", script),
        victim.work,
        sandbox_policy,
        env={"HOME": str(victim.root / "user")},
    )
    assert ended.code == 0, ended.err
    *said, top = ended.out.split("hooks\n")
    assert said == ["works\nconfig\n"]
    # Only what is named, and the way to it.
    way = victim.root.parts[1]
    seen = {path.split("/")[1] for path in MINIMAL}
    assert set(top.split()) <= {*seen, "dev", "proc", way}
    assert {"usr", "bin", "etc"} <= set(top.split())
    assert len(ended.err.splitlines()) >= 5
    assert sorted(os.listdir(victim.work / "docs")) == []
