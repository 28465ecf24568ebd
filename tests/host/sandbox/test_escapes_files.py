"""Ways out of a sandbox through files, each tried for real: first free, then confined."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.permissions.sandbox.policy import UNRESTRICTED, effective_policy_for, resolved
from protocol.turns.policy import ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from tests.support.harness import claim
from tests.support.host.sandboxes import PYTHON, Victim, make_victim, run_confined

PRELUDE = """
import os, sys, shutil
work, outside, root, server = sys.argv[1:5]
def write(path):
    with open(path, "w") as file: file.write("ESCAPED")
    print("ESCAPED")
def show(text):
    assert text
    print("ESCAPED")
"""

WRITES = {
    "a path": "write(outside + '/file.txt')",
    "a new file": "write(outside + '/new.txt')",
    "a link that was there": "write(work + '/link/file.txt')",
    "a link that it makes": "os.symlink(outside, work + '/l'); write(work + '/l/file.txt')",
    "dots": "write(work + '/../outside/file.txt')",
    "its own root": "write('/proc/self/root' + outside + '/file.txt')",
    "its own folder": "write('/proc/self/cwd/../outside/file.txt')",
    "the root of the server": "write(f'/proc/{server}/root{outside}/file.txt')",
    "a hard link": "os.link(outside + '/file.txt', work + '/h'); write(work + '/h')",
    "a rename": "os.rename(work + '/inside.txt', outside + '/file.txt'); print('ESCAPED')",
    "a removal": "os.unlink(outside + '/file.txt'); print('ESCAPED')",
    "its mode": "os.chmod(outside + '/file.txt', 0o777); print('ESCAPED')",
    "its times": "os.utime(outside + '/file.txt', (1, 1)); print('ESCAPED')",
    "a new folder": "os.mkdir(outside + '/new'); print('ESCAPED')",
    "a hook of git": "write(work + '/.git/hooks/pre-commit')",
    "the settings of git": "write(work + '/.git/config')",
    "another folder of git": "os.rename(work + '/.git', work + '/g'); print('ESCAPED')",
    "no folder of git": "shutil.rmtree(work + '/.git'); print('ESCAPED')",
    "a link in the place of git": (
        "shutil.rmtree(work + '/.git', True); os.symlink(outside, work + '/.git'); print('ESCAPED')"
    ),
    "settings of the project": "os.mkdir(work + '/.codex'); write(work + '/.codex/config.toml')",
    "skills of the project": "write(work + '/.agents/x')",
    "rules of the server": "write(root + '/home/rules/default.rules')",
    "settings of the server": "write(root + '/home/config.toml')",
    "keys of the user": "write(root + '/user/.ssh/authorized_keys')",
}

READS = {
    "the account": "show(open(root + '/home/auth.json').read())",
    "a key": "show(open(root + '/user/.ssh/id').read())",
    "the keys": "show(os.listdir(root + '/user/.ssh'))",
    "netrc": "show(open(root + '/user/.netrc').read())",
    "a key by a link": (
        "os.symlink(root + '/user/.ssh', work + '/s'); show(open(work + '/s/id').read())"
    ),
    "a key by a hard link": (
        "os.link(root + '/user/.ssh/id', work + '/k'); show(open(work + '/k').read())"
    ),
    "variables of the server": "show(open(f'/proc/{server}/environ', 'rb').read())",
    "files of the server": "show(os.listdir(f'/proc/{server}/fd'))",
    "memory of the server": "show(open(f'/proc/{server}/mem', 'rb'))",
}


# Where the first process is somebody else's, it cannot be tried without a sandbox.
INNER = {"the root of the first process": "write('/proc/1/root' + outside + '/file.txt')"}


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    """Make a machine to get out of."""
    return make_victim(tmp_path / "machine")


async def tried(victim: Victim, code: str, *, confined: bool, read_only: bool = False) -> str:
    policy = ReadOnlySandboxPolicy() if read_only else None
    command = (
        *PYTHON,
        PRELUDE + code,
        *map(str, (victim.work, victim.outside, victim.root, os.getpid())),
    )
    sandbox_policy = victim.sandbox_policy(policy) if confined else UNRESTRICTED
    ended = await run_confined(command, victim.work, sandbox_policy)
    return "escaped" if "ESCAPED" in ended.out else f"refused {ended.code}"


@pytest.mark.process
@pytest.mark.parametrize("code", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
async def test_without_a_sandbox_all_of_them_lead_out(victim: Victim, code: str) -> None:
    assert await tried(victim, code, confined=False) == "escaped"


@pytest.mark.process
@pytest.mark.parametrize("read_only", [False, True], ids=["workspace", "read-only"])
@pytest.mark.parametrize("code", [*WRITES.values(), *INNER.values()], ids=[*WRITES, *INNER])
@claim("sandbox:files")
async def test_nothing_is_written_outside(victim: Victim, code: str, read_only: bool) -> None:
    before, git = victim.seen(), sorted(os.walk(victim.work / ".git"))
    assert await tried(victim, code, confined=True, read_only=read_only) == "refused 1"
    assert victim.seen() == before
    assert sorted(os.walk(victim.work / ".git")) == git
    assert sorted(path.name for path in (victim.work / ".agents").iterdir()) == []
    assert not (victim.work / ".codex").exists()


@pytest.mark.process
@pytest.mark.parametrize("code", READS.values(), ids=READS)
@claim("sandbox:secrets")
async def test_nothing_secret_is_read(victim: Victim, code: str) -> None:
    assert await tried(victim, code, confined=True) == "refused 1"


@pytest.mark.process
@claim("sandbox:files")
async def test_what_is_allowed_works(victim: Victim) -> None:
    code = """
write(work + "/new.txt")
os.rename(work + "/new.txt", work + "/other.txt")
assert open(outside + "/file.txt").read() == "content of outside/file.txt"
assert os.listdir(work + "/.git") and open(work + "/.git/config").read()
import tempfile
with open("/dev/null", "w") as null, open("/dev/urandom", "rb") as random: assert random.read(9)
"""
    assert await tried(victim, code, confined=True) == "escaped"
    assert (victim.work / "other.txt").read_text() == "ESCAPED"


@pytest.mark.process
@claim("sandbox:git")
async def test_what_a_git_file_points_to_is_protected(victim: Victim) -> None:
    main, tree = victim.root / "work" / "main", victim.work / "tree"
    worktree = main / ".git" / "worktrees" / "tree"
    worktree.mkdir(parents=True)
    tree.mkdir()
    (worktree / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {worktree}\n")
    # The project, where the pointer leads into, can be written but for that.
    sandbox_policy = victim.sandbox_policy(roots=[victim.work, tree])
    for code in (
        f"write({str(worktree / 'config')!r})",
        f"write({str(main / '.git' / 'config')!r})",
        "write(work + '/tree/.git')",
        "os.unlink(work + '/tree/.git'); write(work + '/tree/.git')",
        "os.rename(work + '/tree/.git', work + '/tree/x'); print('ESCAPED')",
    ):
        command = (*PYTHON, PRELUDE + code, str(victim.work), "", "", "")
        ended = await run_confined(command, tree, sandbox_policy)
        assert (ended.code, ended.out) == (1, "")
    ended = await run_confined(("/bin/sh", "-c", "echo x >../main/file"), tree, sandbox_policy)
    assert ended.code == 0


@pytest.mark.process
@claim("sandbox:links")
async def test_roots_that_are_links_and_protected_names_that_are(victim: Victim) -> None:
    real, linked = victim.root / "real", victim.root / "linked"
    real.mkdir()
    linked.symlink_to(real)
    sandbox_policy = victim.sandbox_policy(roots=[linked])
    assert sandbox_policy.writable == (str(real),)
    script = "echo x >file && mkdir .git 2>/dev/null; ls -a"
    ended = await run_confined(("/bin/sh", "-c", script), real, sandbox_policy)
    assert (ended.code, sorted(ended.out.split())) == (
        0,
        [".", "..", ".agents", ".codex", ".git", "file"],
    )
    assert [path.name for path in real.iterdir()] == ["file"]
    # A link cannot be kept from being replaced, so the folder that it is in is not written.
    shutil.rmtree(victim.work / ".agents")
    (victim.work / ".agents").symlink_to(victim.outside)
    sandbox_policy = victim.sandbox_policy()
    assert sandbox_policy.writable == ()
    ended = await run_confined(
        ("/bin/sh", "-c", "rm .agents || rm inside.txt"), victim.work, sandbox_policy
    )
    assert ended.code == 1


@pytest.mark.process
@claim("sandbox:tmp")
async def test_tmp_is_private_where_it_is_not_writable(victim: Victim) -> None:
    sandbox_policy = replace(victim.sandbox_policy(), scratch=("/tmp",))
    script = "echo x >/tmp/of-the-sandbox && ls /tmp && ls .git && cat /tmp/of-the-sandbox"
    ended = await run_confined(("/bin/sh", "-c", script), victim.work, sandbox_policy)
    top = victim.root.relative_to("/tmp").parts[0] if victim.root.is_relative_to("/tmp") else None
    shown = [name for name in ("of-the-sandbox", top) if name is not None]
    assert (ended.code, sorted(ended.out.split())) == (0, sorted([*shown, "config", "hooks", "x"]))
    assert not Path("/tmp/of-the-sandbox").exists()


@pytest.mark.process
async def test_descriptors_of_the_server_are_not_inherited(victim: Victim) -> None:
    kept = os.open(victim.outside / "file.txt", os.O_RDONLY)
    try:
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        ended = await run_confined((*PYTHON, code), victim.work, victim.sandbox_policy())
    finally:
        os.close(kept)
    # 3 is the folder that is listed.
    assert ended.out == "['0', '1', '2', '3']\n", sys.version


@pytest.mark.process
@claim("sandbox:git", "sandbox:home")
async def test_what_is_around_a_protected_place_is_not_replaced(victim: Victim) -> None:
    worktree = victim.work / "sub" / "main" / ".git" / "worktrees" / "tree"
    worktree.mkdir(parents=True)
    (worktree / "commondir").write_text("../..\n")
    tree, state = victim.work / "tree", victim.work / "local" / "state"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {worktree}\n")
    (state / "server").mkdir(parents=True)
    machine_paths = replace(victim.machine_paths, home=str(state / "server"))
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    wanted = effective_policy_for(policy, [str(victim.work), str(tree)], machine_paths)
    sandbox_policy = replace(resolved(wanted), scratch=())
    for folder in ("sub", "sub/main", "local", "local/state", "local/state/server", "tree"):
        code = f"os.rename(work + '/{folder}', work + '/away'); print('ESCAPED')"
        command = (*PYTHON, PRELUDE + code, str(victim.work), "", "", "")
        ended = await run_confined(command, victim.work, sandbox_policy)
        assert (ended.code, ended.out) == (1, ""), folder
        assert not (victim.work / "away").exists()
    # What is beside them can be written and moved.
    script = (
        "mkdir local/a sub/b && echo x >local/state/x && mv local/a local/c && mv sub/b sub/main/"
    )
    ended = await run_confined(("/bin/sh", "-c", script), victim.work, sandbox_policy)
    assert ended.code == 0, ended.err
