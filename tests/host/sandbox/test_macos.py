"""The profile for sandbox-exec, as text: what it says, and what it means for a path."""

import re

import pytest

from app_server.host.sandbox.macos import BASE, DEVICES, NETWORK, SandboxExec, profile
from app_server.permissions.sandbox.policy import UNRESTRICTED, Access, EffectivePolicy
from tests.support.harness import claim

NESTED = EffectivePolicy(
    writable=("/work", "/private/tmp", "/work/.git/worktrees/w"),
    protected=("/work/.git", "/work/.codex", "/Users/u/.server"),
    denied=("/Users/u/.ssh", "/work/key"),
    scratch=("/private/var/t",),
    network=False,
)
RESTRICTED = EffectivePolicy(
    readable=("/usr", "/work/lib"), writable=("/work",), denied=("/usr/x",)
)


def middle(sandbox_policy: EffectivePolicy) -> list[str]:
    """Return the rules that are about places."""
    text = profile(sandbox_policy)
    assert text.startswith(BASE + "\n")
    rest, _, network = text.removeprefix(BASE + "\n").partition(DEVICES + "\n")
    assert network == (f"{NETWORK}\n" if sandbox_policy.network else "")
    return rest.splitlines()


@claim("sandbox:macos")
def test_the_rules_of_a_workspace() -> None:
    assert middle(NESTED) == [
        '(allow file-read* (subpath "/"))',
        '(deny file-write* (subpath "/"))',
        '(allow file-read* file-write* (subpath "/work"))',
        '(allow file-read* file-write* (subpath "/private/tmp"))',
        '(allow file-read* (subpath "/work/.codex"))',
        '(deny file-write* (subpath "/work/.codex"))',
        '(allow file-read* (subpath "/work/.git"))',
        '(deny file-write* (subpath "/work/.git"))',
        '(deny file-read* file-write* (subpath "/work/key"))',
        '(allow file-read* (subpath "/Users/u/.server"))',
        '(deny file-write* (subpath "/Users/u/.server"))',
        '(deny file-read* file-write* (subpath "/Users/u/.ssh"))',
        '(allow file-read* file-write* (subpath "/work/.git/worktrees/w"))',
        '(deny file-write-unlink (literal "/private/tmp"))',
        '(deny file-write-unlink (literal "/work"))',
        '(deny file-write-unlink (literal "/work/.git/worktrees/w"))',
    ]


@claim("sandbox:macos")
def test_nothing_that_has_a_protected_place_in_it_is_renamed() -> None:
    deep = EffectivePolicy(
        writable=("/work",), protected=("/work/a/b/.git",), denied=("/work/c/key",)
    )
    assert [rule for rule in middle(deep) if "unlink" in rule] == [
        '(deny file-write-unlink (literal "/work"))',
        '(deny file-write-unlink (literal "/work/a"))',
        '(deny file-write-unlink (literal "/work/a/b"))',
        '(deny file-write-unlink (literal "/work/c"))',
    ]
    home = EffectivePolicy(protected=("/Users/u/.server",))
    assert [rule for rule in middle(home) if "unlink" in rule] == [
        '(deny file-write-unlink (literal "/Users"))',
        '(deny file-write-unlink (literal "/Users/u"))',
    ]


RULE = re.compile(r'\((allow|deny) (file-read\*)? ?(file-write\*)? ?\(subpath "(.*)"\)\)')


def meaning(rules: list[str], path: str) -> Access:
    """Say what rules let be done: of those that fit the last decides."""
    read = write = False
    for rule in rules:
        if "unlink" in rule:
            continue
        found = RULE.fullmatch(rule)
        assert found is not None
        verb, reads, writes, place = found.groups()
        if path == place or path.startswith(place.rstrip("/") + "/"):
            read = verb == "allow" if reads else read
            write = verb == "allow" if writes else write
    return "write" if write else "read" if read else "none"


@pytest.mark.parametrize(
    "sandbox_policy", [NESTED, RESTRICTED, UNRESTRICTED, EffectivePolicy(writable=())]
)
@pytest.mark.parametrize(
    "path",
    [
        *("/", "/usr/lib", "/usr/x/y", "/work", "/work/a", "/work/lib/b", "/work/.git/config"),
        *("/work/.git/worktrees/w/x", "/work/key", "/work/.codex/new", "/Users/u/.server/rules"),
        *("/Users/u/.ssh/id", "/private/tmp/x", "/private/var/t/x", "/workers"),
    ],
)
@claim("sandbox:macos")
def test_profile_means_what_the_sandbox_policy_says(
    sandbox_policy: EffectivePolicy, path: str
) -> None:
    assert meaning(middle(sandbox_policy), path) == sandbox_policy.access(path)


def test_patterns_are_rules_too() -> None:
    [*_, rule] = middle(EffectivePolicy(writable=(), denied_patterns=('/w/**/*.e"v',)))
    assert rule == '(deny file-read* file-write* (regex #"^/w/(.*/)?[^/]*\\.e\\"v(/.*)?$"))'


def test_names_cannot_end_a_rule() -> None:
    name = '/work")) (allow file-write* (subpath "\\'
    [*_, rule, kept] = middle(EffectivePolicy(writable=(name,)))
    quoted = '/work\\")) (allow file-write* (subpath \\"\\\\'
    assert rule == f'(allow file-read* file-write* (subpath "{quoted}"))'
    assert kept == f'(deny file-write-unlink (literal "{quoted}"))'


@claim("sandbox:macos")
def test_the_command_line() -> None:
    wrapped = SandboxExec("/usr/bin/sandbox-exec").wrap(("ls", "-l"), "/work", NESTED, tty=True)
    assert wrapped.argv == (
        *("/usr/bin/sandbox-exec", "-p", profile(NESTED)),
        *("/usr/bin/env", "CODEX_SANDBOX_NETWORK_DISABLED=1", "ls", "-l"),
    )
    open_ = SandboxExec("/sandbox").wrap(("ls",), "/work", RESTRICTED, tty=False)
    assert open_.argv == ("/sandbox", "-p", profile(RESTRICTED), "ls")
    assert (wrapped.pass_fds, wrapped.takes_terminal) == ((), False)
    for text in (BASE, DEVICES, NETWORK, profile(NESTED)):
        assert text.count("(") == text.count(")")
