"""What a policy lets be reached: from settings to places, from places to answers about paths."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.config.values import Config, ConfigError
from app_server.permissions.sandbox.policy import (
    UNRESTRICTED,
    Access,
    EffectivePolicy,
    FileAccess,
    Ruling,
    effective_policy_for,
    effective_policy_of,
    effective_policy_of_profile,
    resolved,
    restricted_to,
)
from app_server.permissions.sandbox.roots import (
    SECRETS_OF_USERS,
    MachinePaths,
    read_machine_paths,
    with_hidden_paths,
)
from protocol.log.rollout import Settings, StoredProfile
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    FileSystemSandboxEntry,
    PathFileSystemPath,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import claim

PLACES = MachinePaths("/home/u/.server", "/home/u", "/var/t", ("/home/u/.ssh",))
SHUT = EffectivePolicy(
    writable=(),
    protected=("/home/u/.server", "/work"),
    denied=("/home/u/.ssh",),
    scratch=("/tmp", "/var/t"),
    network=False,
)
OPEN = EffectivePolicy(
    writable=("/work", "/more", "/tmp", "/var/t"),
    protected=(
        "/home/u/.server",
        *(
            f"{root}/{name}"
            for root in ("/work", "/more")
            for name in (".git", ".codex", ".agents")
        ),
    ),
    denied=("/home/u/.ssh",),
    network=False,
)


@pytest.mark.parametrize(
    ("policy", "sandbox_policy"),
    [
        (DangerFullAccessSandboxPolicy(), UNRESTRICTED),
        (ExternalSandboxPolicy(), UNRESTRICTED),
        (ExternalSandboxPolicy(network_access="enabled"), UNRESTRICTED),
        (ReadOnlySandboxPolicy(), SHUT),
        (ReadOnlySandboxPolicy(network_access=True), replace(SHUT, network=True)),
        (WorkspaceWriteSandboxPolicy(writable_roots=["/more", "/work/"]), OPEN),
        (
            WorkspaceWriteSandboxPolicy(writable_roots=["/more"], network_access=True),
            replace(OPEN, network=True),
        ),
        (
            WorkspaceWriteSandboxPolicy(writable_roots=["/more"], exclude_slash_tmp=True),
            replace(OPEN, writable=("/work", "/more", "/var/t"), scratch=("/tmp",)),
        ),
        (
            WorkspaceWriteSandboxPolicy(writable_roots=["/more"], exclude_tmpdir_env_var=True),
            replace(OPEN, writable=("/work", "/more", "/tmp"), scratch=("/var/t",)),
        ),
    ],
)
@claim("sandbox:policies")
def test_every_policy(policy: SandboxPolicy, sandbox_policy: EffectivePolicy) -> None:
    assert effective_policy_for(policy, ["/work"], PLACES) == sandbox_policy
    assert sandbox_policy.is_restricted is (sandbox_policy is not UNRESTRICTED)


@claim("sandbox:policies")
def test_the_roots_are_those_of_the_settings() -> None:
    settings = Settings(
        model="m",
        model_provider="p",
        cwd="/work",
        approval_policy="never",
        sandbox_policy=WorkspaceWriteSandboxPolicy(writable_roots=["/more"]),
    )
    assert effective_policy_of(settings, PLACES) == OPEN
    elsewhere = settings.model_copy(update={"workspace_roots": ["/one", "/two"]})
    assert (effective_policy_of(elsewhere, PLACES).writable or ())[:3] == ("/one", "/two", "/more")
    nowhere = settings.model_copy(update={"without_environment": True})
    assert (effective_policy_of(nowhere, PLACES).writable or ())[:1] == ("/more",)


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/work/.codex/config.toml", "read"),
        ("/work/a/.codex/config.toml", "read"),
        ("/work/a/.git/config", "read"),
        ("/work/a/b/.codex/config.toml", "read"),
        ("/work/a/b/.agents/skills/x/SKILL.md", "read"),
        ("/work/a/b/.codexes", "write"),
        ("/work/a/c/.codex/config.toml", "write"),
        ("/work/a/b/c/.git/config", "write"),
    ],
)
@claim("sandbox:files")
def test_settings_are_protected_from_a_root_down_to_where_the_work_is_done(
    path: str, access: str
) -> None:
    """The next thread there reads its settings from each of these folders."""
    settings = Settings(
        model="m",
        model_provider="p",
        cwd="/work/a/b/",
        workspace_roots=["/other", "/work/a", "/work"],
        approval_policy="never",
        sandbox_policy=WorkspaceWriteSandboxPolicy(),
    )
    assert effective_policy_of(settings, PLACES).access(path) == access
    entry = FileSystemSandboxEntry(path=PathFileSystemPath(path="/work"), access="write")
    profile = StoredProfile(
        id="mine", entries=[entry], sandbox_policy=WorkspaceWriteSandboxPolicy()
    )
    assert (
        effective_policy_of_profile(profile, ["/work"], PLACES, "/work/a/b").access(path) == access
    )


def test_a_folder_of_the_work_that_cannot_be_written_has_no_names_of_its_own() -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    assert effective_policy_for(policy, ["/work"], PLACES, "/elsewhere") == effective_policy_for(
        policy, ["/work"], PLACES
    )
    in_tmp = effective_policy_for(WorkspaceWriteSandboxPolicy(), ["/work"], PLACES, "/tmp/p")
    assert in_tmp.access("/tmp/p/.codex/config.toml") == "read"
    assert in_tmp.access("/tmp/.codex/config.toml") == "write"


@pytest.mark.parametrize(
    ("root", "is_writable"),
    [
        ("/home/u/.server", False),
        ("/home/u/.server/rules", False),
        ("/home/u/.server/./threads/2026", False),
        ("/home/u/.server/worktrees/w", True),
        ("/home/u/.server2", True),
        ("/home/u", True),
    ],
)
@claim("sandbox:home")
def test_the_home_of_the_server_is_nobodys_project(root: str, is_writable: bool) -> None:
    sandbox_policy = restricted_to(FileAccess(writable=[root]), PLACES)
    assert (sandbox_policy.access(f"{root}/x".replace("/./", "/")) == "write") is is_writable
    assert sandbox_policy.access("/home/u/.server/config.toml") == "read"


NESTED = EffectivePolicy(
    readable=("/usr", "/work/secret/public"),
    writable=("/work", "/work/.git/worktrees/w"),
    protected=("/work/.git",),
    denied=("/work/secret", "/work/both"),
    denied_patterns=("/work/**/*.env",),
)


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", "none"),
        ("/usr", "read"),
        ("/usr/lib/x", "read"),
        ("/usrlocal", "none"),
        ("/work", "write"),
        ("/work/a/b", "write"),
        ("/work/.git", "read"),
        ("/work/.GIT/config", "read"),
        ("/work/.gitignore", "write"),
        ("/work/.git/worktrees/w/x", "write"),
        ("/work/secret", "none"),
        ("/work/Secret/x", "none"),
        ("/work/secret/public/x", "read"),
        ("/work/a/.env", "none"),
        ("/work/a/.ENV/b", "none"),
        ("/work/a/.envy", "write"),
    ],
)
@claim("sandbox:nested")
def test_the_deepest_place_decides(path: str, access: Access) -> None:
    assert NESTED.access(path) == access
    assert Ruling(NESTED).access(path) == access


def test_of_two_entries_for_a_place_the_stricter_counts() -> None:
    same = ("/a",)
    assert EffectivePolicy(readable=same, writable=same, protected=same, denied=same).access(
        "/a"
    ) == ("none")
    assert EffectivePolicy(readable=same, writable=same, protected=same).access("/a/b") == "read"
    assert EffectivePolicy(readable=same, writable=same).access("/a/b") == "write"
    assert UNRESTRICTED.access("/a") == "write"
    assert EffectivePolicy(writable=()).access("/a") == "read"


@claim("sandbox:secrets")
def test_the_places_of_a_machine() -> None:
    places = read_machine_paths(
        "/srv/home",
        ["/home/u/mine", "/else", "relative"],
        {
            "HOME": "/home/u",
            "TMPDIR": "/var/t",
            "CODEX_HOME": "/codex",
            "XDG_RUNTIME_DIR": "/runtime",
            "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1",
        },
    )
    assert (places.home, places.user_home, places.tmpdir) == ("/srv/home", "/home/u", "/var/t")
    assert {
        *(f"/home/u/{name}" for name in SECRETS_OF_USERS),
        "/home/u/mine",
        "/else",
        "/srv/home/auth.json",
        "/srv/home/.credentials.json",
        "/srv/home/app-server.sock",
        "/codex/auth.json",
        "/codex/.credentials.json",
        "/runtime/keyring",
        "/runtime/bus",
        f"/run/user/{os.getuid()}",
        "/tmp/ssh-x/agent.1",
        "/run/docker.sock",
    } <= set(places.secrets)
    assert all(place.startswith("/") for place in places.secrets)
    bare = read_machine_paths("/srv/home", (), {"HOME": "/home/u"})
    assert bare.tmpdir is None
    assert "/home/u/.codex/auth.json" in bare.secrets


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (7, "invalid type: integer `7`, expected a sequence"),
        (["a/b"], "expected a path that begins with `/` or `~/`: `a/b`"),
        (["~other/x"], "expected a path that begins with `/` or `~/`: `~other/x`"),
        (["/x"] * 257, "expected at most 256 paths"),
    ],
)
def test_settings_that_hide_nothing(value: object, problem: str) -> None:
    config = Config({"sandbox_hidden_paths": value})
    with pytest.raises(ConfigError) as refused:
        with_hidden_paths(config, read_machine_paths("/srv/home"))
    assert str(refused.value) == f"{problem}\nin `sandbox_hidden_paths`\n"


def test_settings_hide_more() -> None:
    config = Config({"sandbox_hidden_paths": ["~/mine", "/else"]})
    bare = read_machine_paths("/srv/home", ["/srv/token"], {"HOME": "/home/u"})
    assert "/srv/token" in bare.secrets
    places = with_hidden_paths(config, bare)
    assert places == replace(bare, secrets=(*bare.secrets, "/home/u/mine", "/else"))
    assert with_hidden_paths(Config({}), bare) == bare


@claim("sandbox:links")
def test_what_places_mean_on_a_disk(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for folder in ("real/.git", "store/.git/worktrees/w", "tree", "tmp", "keys", "bad"):
        (root / folder).mkdir(parents=True)
    (root / "link").symlink_to("real")
    (root / "hidden").symlink_to("keys")
    (root / "tree" / ".git").write_text("gitdir: ../store/.git/worktrees/w\nmore")
    (root / "store/.git/worktrees/w/commondir").write_text("../..")
    (root / "bad" / ".codex").symlink_to(root / "keys")
    roots = [str(root / name) for name in ("link", "tree", "missing", "bad")]
    names = (".git", ".codex", ".agents")
    before = EffectivePolicy(
        readable=(str(root / "link"), str(root / "missing")),
        writable=tuple(roots),
        protected=tuple(f"{place}/{name}" for place in roots for name in names),
        denied=(str(root / "hidden"), str(root / "nothing")),
        scratch=(str(root / "tmp"), str(root / "missing")),
    )
    found = resolved(before)
    assert found == replace(
        before,
        readable=(f"{root}/real",),
        writable=(f"{root}/real", f"{root}/tree"),
        protected=(
            *(f"{root}/real/{name}" for name in names),
            f"{root}/tree/.git",
            f"{root}/store/.git/worktrees/w",
            f"{root}/store/.git",
            *(f"{root}/tree/{name}" for name in names[1:]),
            *(f"{root}/missing/{name}" for name in names),
            f"{root}/bad/.git",
            f"{root}/bad/.codex",
            f"{root}/keys",
            f"{root}/bad/.agents",
        ),
        denied=(f"{root}/keys", f"{root}/nothing"),
        scratch=(f"{root}/tmp",),
    )
    assert resolved(UNRESTRICTED) is UNRESTRICTED


@pytest.mark.parametrize("content", ["", "gitdir", "other: /x", "\0"])
def test_what_is_no_pointer_of_git(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_text(content)
    place = f"{tmp_path.resolve()}/.git"
    assert resolved(EffectivePolicy(protected=(place,))).protected == (place,)


def test_a_pipe_in_the_place_of_a_pointer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    place = f"{tmp_path.resolve()}/.git"
    assert resolved(EffectivePolicy(protected=(place,))).protected == (place,)
