"""host.search: what ignore files leave out, held against git's own answer."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app_server.host.files.work import Stop
from app_server.host.search.ignore import expression
from app_server.host.search.listing import Tree
from tests.support.files.descriptors import open_below
from tests.support.files.search import files_of, listed, write
from tests.support.harness import claim


@pytest.fixture(autouse=True)
def without_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have no exclusions of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "core.quotePath=false", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def git_lists(root: Path) -> list[str]:
    return sorted(
        name
        for name in git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
        if name
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    return root


FILES = [
    "a.py",
    "a.log",
    "keep.log",
    "build/out.o",
    "src/build/x",
    "src/a.log",
    "src/keep.log",
    "src/deep/er/a.py",
    "docs/_build/page",
    "dist",
    "node_modules/m/index.js",
    ".venv/bin/python",
    ".hidden",
    "src/sp ace.txt",
    "ünï.txt",
    "x[1].txt",
    "#hash",
    "!bang",
    "Build/y",
    "src/b~",
    "src/a.py.log",
    "two\nlines",
]
PATTERN_LINES = [
    "*.log",
    "!keep.log",
    "/keep.log",
    "build",
    "build/",
    "/build",
    "build/*",
    "!build/out.o",
    "src/build",
    "src/**/a.py",
    "**/er",
    "docs/_build/",
    "dist",
    "/dist/",
    "node_modules/",
    ".venv",
    "*.py",
    "!/a.py",
    "src/*",
    "!src/deep",
    "*.[lo]*",
    "x\\[1\\].txt",
    "\\#hash",
    "\\!bang",
    "# a comment",
    "",
    "ünï.*",
    "sp\\ ace.txt",
    "*",
    "!*/",
    "!*.txt",
    "trailing   ",
    "er/",
    "?.py",
    "[Bb]uild",
    "[Bb]uild/[xy]",
    "*.[lo]og",
    "*.[lo]",
    "[a-d]*",
    "[!a]*",
    "dee[p]/",
    "[]b]*",
    "*~",
    "*b~",
    "a.*",
    "*.py.log",
    "*y.log",
    "/*.log",
    "/src/*.log",
    "docs/**",
    "/src/**",
    "src/deep/er",
    "/src/deep/*/",
    "**/deep/er/",
    "**",
    "two?lines",
    "*s",
    "build//",
]


@claim("search-files:ignored")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    top=st.lists(st.sampled_from(PATTERN_LINES), max_size=6),
    inner=st.lists(st.sampled_from(PATTERN_LINES), max_size=3),
    exclude=st.lists(st.sampled_from(PATTERN_LINES), max_size=2),
    user=st.lists(st.sampled_from(PATTERN_LINES), max_size=2),
)
def test_what_git_ignores_is_not_listed(
    tmp_path: Path,
    repository: Path,
    top: list[str],
    inner: list[str],
    exclude: list[str],
    user: list[str],
) -> None:
    write(repository, dict.fromkeys(FILES, ""))
    write(
        repository,
        {
            ".gitignore": "\n".join(top),
            "src/.gitignore": "\n".join(inner),
            ".git/info/exclude": "\n".join(exclude),
        },
    )
    write(tmp_path / "user", {".config/git/ignore": "\n".join(user)})
    assert listed(repository) == git_lists(repository)


@claim("search-files:ignored")
@pytest.mark.parametrize("pattern", ["/src/**", "src/**", "**/src/**", "src/*"])
def test_what_is_in_an_ignored_place_may_be_taken_out_again(repository: Path, pattern: str) -> None:
    write(repository, dict.fromkeys(["keep.log", "src/keep.log", "src/a.log"], ""))
    write(repository, {".gitignore": f"{pattern}\n!keep.log\n"})
    assert listed(repository) == [".gitignore", "keep.log", "src/keep.log"]
    assert listed(repository) == git_lists(repository)


LETTERS = "abz019 -!^[]\\:&~|_"


def write_letters(root: Path) -> None:
    """Make a file for each letter, between two others, and one in a folder where a slash is it."""
    write(root, {f"q{letter}x": "" for letter in (*LETTERS, "/")})


SETS = r"""
[[:alpha:]] [![:alnum:]] [[:digit:]-] [[:punct:][:space:]] [[:graph:]] [[:print:]] [[:xdigit:]]
[[:upper:]a] [[:lower:]] [[:cntrl:]] [[:blank:]] [[:] [[:nothing:]] [:alpha:] [[:alpha:] [[:alpha:
[\]b] [\\] [a\-z] [\a-\b] [a-] [-a] []a] [!]a] [^a] [a^] [[a] [[] [!a] [a&&b] [a||b] [a~~b]
[z-a] [!-~] [a--] [0-9a-b] [a [] [!] [ \[a] [a\] [:-[::] []-a] [a-\]] [[:digit:]--a] [a-b-~] [[-:]
"""


@claim("search-files:ignored")
def test_sets_of_letters_are_read_as_git_reads_them(repository: Path) -> None:
    for number, one in enumerate(SETS.split()):
        write(repository, {f"{number}/.gitignore": f"q{one}x"})
        write_letters(repository / str(number))
    assert listed(repository) == git_lists(repository)


@claim("search-files:ignored")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inside=st.text("ab-!^[]\\:", max_size=6))
def test_any_set_of_letters_is_read_as_git_reads_it(repository: Path, inside: str) -> None:
    write_letters(repository)
    write(repository, {".gitignore": f"q[{inside}]x"})
    assert listed(repository) == git_lists(repository)


PARTS = [
    *("a", "b", "foo", "é", "/", "*", "**", "***", "**/", "/**", "?", "[a/]", "[!a]", "[^é]"),
    *("[a-é]", "[!/]", "\\", "\\/", "!", " ", "\\ ", "\t", "\r", "#", "[", "]"),
]
ANY_PATTERN = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join)


@claim("search-files:ignored")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(ANY_PATTERN, min_size=1, max_size=3))
@example(lines=["b[a/]"])
@example(lines=["[!/]*", "!b[!a]"])
@example(lines=["[!a]", "!?"])
@example(lines=["***", "!foo**"])
@example(lines=["/foo**/b"])
@example(lines=["a \t", "é\r", "b\x0ba\u2028"])
def test_any_pattern_is_read_as_git_reads_it(repository: Path, lines: list[str]) -> None:
    files = ["a", "ü", "éa", "a b", "[a]", "b/a", "b/foo/a", "é/é", "b/é/a", "foob", "a\t"]
    write(repository, dict.fromkeys([*files, "foo/b", "fooa/b/a"], ""))
    write(repository, {".gitignore": "\n".join(lines)})
    assert listed(repository) == git_lists(repository)


@pytest.mark.parametrize(
    "pattern", ["*a" * 40, "**/a*" * 30, "*a/" * 40, "**/a/" * 40, "[ab]*" * 40, "**/?*/" * 40]
)
@pytest.mark.parametrize("path", ["a" * 255, "a/" * 127 + "a"], ids=["name", "folders"])
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    # If it took exponential time, the test would take years.
    assert re.fullmatch(expression(f"{pattern}b"), path, re.DOTALL) is None


def test_common_patterns_are_read_as_git_reads_them(repository: Path) -> None:
    lines = [
        "# all",
        "",
        "bin/",
        "*.py[co]",
        "/dist",
        "!a/dist",
        "docs/_build/",
        "[Oo]bj",
        "*.log ",
    ]
    write(repository, {".gitignore": "\n".join(lines)})
    kept = ["a.py", "a/dist", "docs/in/_build/x", "in/bin"]
    write(repository, dict.fromkeys(kept, ""))
    gone = ["a.pyc", "in/b.pyo", "bin/x", "dist", "in/obj/x", "docs/_build/x", "x.log", "x.y.log"]
    write(repository, dict.fromkeys(gone, ""))
    tree = Tree(repository)
    tree.refresh(Stop())
    assert files_of(tree) == [".gitignore", *kept] == git_lists(repository)


@claim("search-files:ignored")
def test_the_user_may_have_exclusions_elsewhere(tmp_path: Path, repository: Path) -> None:
    write(
        tmp_path,
        {"mine": "*.o\n", "user/.gitconfig": f"[core]\n\texcludesFile = {tmp_path}/mine\n"},
    )
    write(repository, {"a.o": "", "a.c": ""})
    assert listed(repository) == ["a.c"] == git_lists(repository)


def test_files_of_git_that_were_read_are_closed(tmp_path: Path, repository: Path) -> None:
    write(tmp_path, {"user/.gitconfig": "[core]\n\texcludesFile = ~/mine\n", "user/mine": "a\n"})
    write(repository, {".git/info/exclude": "b\n", "a": "", "b": "", "c": ""})
    assert listed(repository) == ["c"]
    assert open_below(tmp_path) == []


@claim("search-files:ignored")
def test_a_part_of_a_repository_is_searched_with_the_rules_above_it(repository: Path) -> None:
    write(
        repository,
        {".gitignore": "/src/out\n*.o\n/top", "src/out/x": "", "src/a.o": "", "src/top": ""},
    )
    assert listed(repository / "src") == ["top"]


@claim("search-files:ignored")
def test_rules_above_hold_below_a_folder_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    above = os.fsencode(tmp_path) + b"/caf\xe9"
    try:
        os.mkdir(above)
    except OSError:
        # A disk that has names in UTF-8 alone (macOS).
        above = os.fsencode(tmp_path) + b"/cafe"
        os.mkdir(above)
    root = Path(os.fsdecode(above), "sub")
    write(root, {"a": "", "xay": ""})
    write(tmp_path, {".ignore": "caf?/sub/x?y"})
    assert listed(root) == ["a"]


@claim("search-files:ignored")
def test_a_repository_in_another_one_has_its_own_rules(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    write(repository, {".gitignore": "*.o\n", "a.o": "", "inner/.gitignore": "*.c\n"})
    write(inner, {"a.o": "", "a.c": "", "a.d": "", ".git/info/exclude": "*.d\n"})
    assert listed(repository) == [".gitignore", "inner/.gitignore", "inner/a.o"]


@claim("search-files:fresh")
def test_changed_exclusions_of_a_repository_in_another_one_count_at_once(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    write(inner, {"a": "", "b": ""})
    tree = Tree(repository)
    for text, expected in (("a\n", ["inner/b"]), ("b\n", ["inner/a"])):
        write(inner, {".git/info/exclude": text})
        tree.refresh(Stop())
        assert files_of(tree) == expected


@claim("search-files:ignored")
def test_a_work_tree_has_the_exclusions_of_its_repository(tmp_path: Path, repository: Path) -> None:
    write(repository, {"a": "", ".git/info/exclude": "*.o\n"})
    git(repository, "add", "a")
    git(repository, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t")
    git(repository, "worktree", "add", "-q", str(tmp_path / "other"))
    write(tmp_path / "other", {"b.o": "", "b.c": ""})
    assert listed(tmp_path / "other") == ["a", "b.c"]


@claim("search-files:ignored")
def test_git_rules_hold_in_repositories_alone_and_ignore_files_everywhere(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    write(root, {".gitignore": "*.o\n", ".ignore": "*.c\n", "a.o": "", "a.c": "", "in/b.c": ""})
    assert listed(root) == [".gitignore", ".ignore", "a.o"]
    git(root, "init", "-q")
    write(root, {".ignore": "!*.o\n"})
    assert listed(root) == [".gitignore", ".ignore", "a.c", "a.o", "in/b.c"]


@claim("search-files:ignored")
def test_an_empty_git_folder_is_no_repository(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    write(root, {".gitignore": "*.o\n", "a.o": "", "in/.gitignore": "*.c\n", "in/a.c": ""})
    (root / ".git").mkdir()
    (root / "in" / ".git").mkdir()
    assert listed(root) == [".gitignore", "a.o", "in/.gitignore", "in/a.c"]
    (root / ".git").rmdir()
    git(root, "init", "-q")
    assert listed(root) == [".gitignore", "in/.gitignore"]
