"""A patch in a shell command is found where it is all that the command does."""

import pytest

from app_server.patch.in_command import CommandPatch, find_patch
from app_server.permissions.shell.parse import ShellGrammar
from tests.patch.folders import patch_of

PATCH = patch_of("*** Add File: a", "+$HOME `date` $(x) 'it \"s", "+(") + "\n"
GRAMMAR = ShellGrammar()


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (f"apply_patch <<'EOF'\n{PATCH}EOF", CommandPatch(PATCH)),
        (f'\n applypatch << "END" \n{PATCH}END\n\n', CommandPatch(PATCH)),
        (f"apply_patch <<EOF\n{PATCH}EOF\n", CommandPatch(PATCH)),
        (f"apply_patch <<-E\n\t{PATCH}\tE\n", CommandPatch(PATCH)),
        (f"cd 'sub dir' && apply_patch <<'EOF'\n{PATCH}EOF", CommandPatch(PATCH, "sub dir")),
        (f"cd /abs\\ olute && apply_patch <<'EOF'\n{PATCH}EOF", CommandPatch(PATCH, "/abs olute")),
        ("apply_patch <<'EOF'\nno patch\nEOF", CommandPatch("no patch\n")),
    ],
)
async def test_a_patch_is_found(script: str, found: CommandPatch) -> None:
    assert await find_patch(GRAMMAR, script) == found


@pytest.mark.parametrize(
    "script",
    [
        "",
        "apply_patch",
        "ls\napply_patch",
        f"apply_patch '{PATCH}'",
        f"apply_patch <<'EOF'\n{PATCH}EOF\necho hi",
        f"apply_patch <<'EOF'\n{PATCH}",
        f"apply_patch <<'EOF' > out\n{PATCH}EOF",
        f"apply_patch <<'EOF' | cat\n{PATCH}EOF",
        f"apply_patch <<'EOF' && rm -rf x\n{PATCH}EOF",
        f"apply_patch x <<'EOF'\n{PATCH}EOF",
        f"cat <<'EOF' | apply_patch\n{PATCH}EOF",
        f"X=1 apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd sub; apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd sub || apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd && apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd a b && apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd $DIR && apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd ~/x && apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd - && apply_patch <<'EOF'\n{PATCH}EOF",
        f"cd su* && apply_patch <<'EOF'\n{PATCH}EOF",
        f"ls && apply_patch <<'EOF'\n{PATCH}EOF",
        f"! apply_patch <<'EOF'\n{PATCH}EOF",
        f"apply_patch <<'EOF' &\n{PATCH}EOF",
        f"apply_patch <<'A' <<'B'\n{PATCH}A\nB",
        f"{'$(' * 4_000} apply_patch <<'EOF'\n{PATCH}EOF",
        f"{'x' * 10_000} apply_patch <<'EOF'\n{PATCH}EOF",
    ],
)
async def test_anything_else_is_a_command(script: str) -> None:
    assert await find_patch(GRAMMAR, script) is None
