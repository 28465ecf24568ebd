"""What is judged harmless is run for real: nothing changes, and no planted program runs."""

import os
import random
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app_server.permissions.commands.safe import CHECKED, GIT, HARMLESS, not_reading
from app_server.permissions.environment import PLAIN_OUTPUT
from app_server.permissions.shell.parse import ShellGrammar

EVERYWHERE = (
    *("cat", "cut", "find", "grep", "head", "ls", "sort", "tail", "tr", "uniq", "wc", "diff"),
    *("printf", "echo", "cd", "sed", "date", "git"),
)
"""What each machine has that this server is built on."""

ALL = sorted({*HARMLESS, *CHECKED, "find", "sed", "git", "printf", "echo", "command", "expr"})

BUILTINS = {
    "cd": ["-L", "-P", "-e", "-q", "-s"],
    "command": ["-v", "-V", "-p"],
    "echo": ["-n", "-e", "-E"],
    "printf": ["-v", "-"],
    "pwd": ["-L", "-P"],
    "type": ["-a", "-f", "-p", "-P", "-t", "-w"],
}
"""Programs that the shells have themselves, with options that any of them knows."""

MORE = {
    "date": ["+%s", "010101012030", "-j", "-v1d"],
    "sed": ["-n", "1p", "'1,2p'", "'1w OUT'", "1e./evil", "s/a/b/w", "-e", "-i", "--in-place"],
    "git": [
        *(
            "--no-pager",
            "-c",
            "-C",
            "--exec-path=.",
            "-p",
            "branch",
            "tag",
            "stash",
            "list",
            "remote",
        ),
        *("-v", "-a", "-l", "worktree", "--list", "--version", "status", "log", "config", "gc"),
    ],
    "find": ["-newermt", "-perm", "-u+x", "-mtime", "-1", "-size", "-5k", "!", "','", "'('", "')'"],
    "printf": [
        "*",
        "./*",
        "~+",
        "'%d'",
        "'%s'",
        "'%*d'",
        "%%s",
        "'%5b'",
        "'%i%s'",
        "%x",
        "'%s\\n'",
    ],
    "jq": [".", "-n", "'.a'"],
    "tail": ["-1", "+1"],
}

FILES = ("a", "b", "sub", ".", "d.json")
RISKY = (
    *(
        "OUT",
        "b",
        "./evil",
        "evil",
        "--",
        "-o",
        "-oOUT",
        "-O./evil",
        "--output=OUT",
        "--pre=./evil",
    ),
    *("-exec", "-delete", "*", "./*", "./[ab]", "[ab]", "^a", "{ab}", "=evil", "nothing*"),
)
VALUES = (
    *("1", "2", "HEAD", "needle", "-", "", "?", "~", "a#b", "HEAD^", "'*.txt'", "always", "-1"),
    *("'psvar[$(./evil)]'", "'a[$(./evil)]'", "'$(./evil)'", "'%d'", '"a b"'),
)

HARMFUL = re.compile(r"-[oOxXzZCTDlRs]|--.*(exec|pre|out|open|pager|prog|temp|ext|comp|delete).*")
"""Options that more lines have than others."""

PLANTED = (
    *("evil", "less", "more", "pager", "pr", "man", "gpg", "gpg2", "gpgsm", "ssh-keygen", "gzip"),
    *("gunzip", "bzip2", "xz", "zstd", "lz4", "lzma", "lzip", "brotli", "uncompress", "compress"),
    *("vi", "editor"),
)
"""What programs start by themselves; `evil` is what they are asked to start."""

ENDLESS = re.compile(r"\S*tail .*-(-?[A-Za-z0-9]*[fF]|-retry)|\S*free .*(-\w*[sc]|--sec|--cou)")
"""What is harmless, and waits for more."""

READER = ShellGrammar()
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z0-9][A-Za-z0-9-]*|-\.)(\[?=|)")


def real_options(program: str, folder: Path) -> list[str]:
    """Return the options that a program, or a command of git, says that it has."""
    if program in BUILTINS:
        return BUILTINS[program]
    found: set[str] = set()
    asked = ["--git-completion-helper-all"] if "git " in program else ["--help"]
    for option in (*asked, "-h") if "git " in program else asked:
        shown = subprocess.run(
            [*program.split(), option],
            cwd=folder,
            env=variables(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=30,
        )
        text = (shown.stdout + shown.stderr).decode(errors="replace")
        found |= {match[1] for match in OPTION.finditer(text)}
    return sorted(found)


def made_lines(program: str, options: Sequence[str], folder: Path) -> Iterator[str]:
    """Make command lines, the same ones each time."""
    chance = random.Random(program)
    harmful = [option for option in options if HARMFUL.fullmatch(option)] or list(options)
    weighted = [*options, *harmful * (len(options) // len(harmful))]
    letters = [option[1] for option in weighted if len(option) == 2] or ["o"]
    names = [option for option in weighted if option.startswith("--")] or ["--output"]
    more = MORE.get(program, [])
    name = program if program in BUILTINS else str(Path("/usr/bin") / program)
    while True:
        words = [name]
        for _ in range(chance.choice((1, 2, 2, 3, 3, 4, 5))):
            value = chance.choice(chance.choice((more or VALUES, FILES, RISKY, RISKY)))
            option = chance.choice(weighted)
            match chance.randrange(11):
                case 0 | 1:
                    words += [option, value]
                case 2:
                    words.append(option)
                case 3:
                    words.append(f"-{chance.choice(letters)}{value}")
                case 4:
                    words.append(f"{chance.choice(names)}={value}")
                case 5:
                    bundle = "".join(chance.choice(letters) for _ in range(chance.randint(2, 4)))
                    words.append(f"-{bundle}{chance.choice(('', '', value))}")
                case 6:
                    one = chance.choice(names)
                    words.append(one[: chance.randint(3, len(one))])
                case 7:
                    words.append("--")
                case _:
                    words.append(value)
        yield " ".join(words)


async def harmless_lines(programs: Sequence[str], folder: Path, wanted: int) -> list[str]:
    """Return lines of each program that run unasked."""
    found: dict[str, None] = {}
    for program in programs:
        commands = [f"git {command}" for command in GIT] if program == "git" else []
        for one in (program, *commands):
            lines = made_lines(one, real_options(one, folder), folder)
            kept = 0
            for _ in range(40 * wanted):
                if kept == wanted:
                    break
                line = next(lines)
                script = await READER.read(line)
                if not script.is_understood or not_reading(script, is_trusted=True):
                    continue
                if line not in found and not ENDLESS.match(line):
                    found[line] = None
                    kept += 1
            assert kept > 0, one
    return list(found)


def variables(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{folder.parent / 'planted'}:/usr/bin:/bin",
        "HOME": str(folder.parent / "home"),
        "RAN": str(folder.parent / "ran"),
        "EDITOR": "vi",
        "GIT_CONFIG_NOSYSTEM": "1",
        **PLAIN_OUTPUT,
        # What a shell's user would have.
        "PAGER": "less",
        "GIT_PAGER": "less",
    }


def planted_folder(root: Path) -> Path:
    """Make a repository with files, and programs that write down that they ran."""
    folder, planted, home = root / "work", root / "planted", root / "home"
    for place in (folder, planted, home, folder / "sub"):
        place.mkdir()
    for place in (folder, planted):
        for name in PLANTED:
            program = place / name
            program.write_text('#!/bin/sh\necho "$0" "$@" >> "$RAN"\n')
            program.chmod(0o755)
    contents = {"a": "needle\n1\n", "b": "b\n", "sub/c.txt": "needle\n", "d.json": '{"a": 1}\n'}
    # Patterns may become these.
    options = ("-oOUT", "-o", "--output=OUT", "--pre=evil", "-exec", "-delete", "--compress=evil")
    numbers = ("%d", "psvar[$(evil)]")
    for name, text in {**contents, **dict.fromkeys(options + numbers, "needle\n")}.items():
        (folder / name).write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "one"],
    ):
        subprocess.run(["/usr/bin/git", *words], cwd=folder, env=variables(folder), check=True)
    (folder / "a").write_text("needle\n2\n")
    return folder


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return all files with their modes and contents."""
    found: dict[str, tuple[int, bytes]] = {}
    for place, _, names in os.walk(folder.parent):
        for name in ("", *names):
            path = Path(place, name)
            mode = path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[str(path.relative_to(folder.parent))] = (mode, content)
    return found


def run(shell: str, lines: Sequence[str], folder: Path) -> None:
    """Run lines, each as `shell -c` would, but in one process."""
    quoted = ("'" + line.replace("'", "'\\''") + "'" for line in lines)
    script = folder.parent / "script"
    script.write_text("".join(f"( eval {one} ) </dev/null >/dev/null 2>&1\n" for one in quoted))
    environment = variables(folder)
    subprocess.run(
        [shell, str(script)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    script.unlink()


def harm(shell: str, lines: Sequence[str], folder: Path) -> list[str]:
    """Return the lines that changed a file or ran a planted program."""
    before = state_of(folder)
    run(shell, lines, folder)
    if state_of(folder) == before:
        return []
    if len(lines) == 1:
        return list(lines)
    middle = len(lines) // 2
    halves = lines[:middle], lines[middle:]
    return [line for half in halves for line in harm(shell, half, remade(folder))] or list(lines)


def remade(folder: Path) -> Path:
    """Make everything anew, after something was changed."""
    root = folder.parent
    for place in root.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    return planted_folder(root)


@pytest.mark.process
@pytest.mark.parametrize("shell", ["sh", "bash"])
async def test_what_runs_unasked_changes_nothing(tmp_path: Path, shell: str) -> None:
    folder = planted_folder(tmp_path)
    lines = await harmless_lines(EVERYWHERE, folder, 16)
    assert harm(shell, lines, folder) == []


@pytest.mark.process
@pytest.mark.slow
async def test_no_harmless_line_of_any_program_changes_anything(tmp_path: Path) -> None:
    # `.ci/run` installs what is missing: a check that cannot run fails.
    shells = ("sh", "bash", "dash", "zsh")
    # Debian calls `fd` `fdfind`.
    programs = [name for name in ALL if name != "fd"]
    needed = [*shells, *(name for name in programs if name not in BUILTINS)]
    missing = [name for name in needed if shutil.which(name, path="/usr/bin:/bin") is None]
    assert missing == [], f"to be installed: {missing}"
    folder = planted_folder(tmp_path)
    lines = await harmless_lines(programs, folder, 32)
    assert len(lines) > 2_000
    is_dash = Path("/bin/sh").samefile("/bin/dash")
    for shell in shells[1:] if is_dash else shells:
        assert harm(shell, lines, folder) == []
