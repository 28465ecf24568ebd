"""What is understood of a script, and what is found in one that is not."""

import json

import anyio
import hypothesis
import pytest
from hypothesis import strategies as st

from app_server.permissions.shell.parse import (
    MAX_DEPTH,
    MAX_INLINE_BYTES,
    MAX_NODES,
    ShellGrammar,
)
from app_server.permissions.shell.script import MAX_COMMANDS, MAX_SCRIPT_BYTES, Script

READER = ShellGrammar()


def pipelines(script: Script) -> list[list[tuple[str, ...]]] | None:
    """Return the words of what was understood."""
    if script.pipelines is None:
        return None
    return [[command.texts for command in part.commands] for part in script.pipelines]


UNDERSTOOD = {
    "ls": [[("ls",)]],
    "ls -la src;": [[("ls", "-la", "src")]],
    "git status | head -1": [[("git", "status"), ("head", "-1")]],
    "a && b || c; d\ne": [[("a",)], [("b",)], [("c",)], [("d",)], [("e",)]],
    "a |\n  b": [[("a",), ("b",)]],
    "ls \\\n  -la": [[("ls", "-la")]],
    "ls # what is here?\npwd": [[("ls",)], [("pwd",)]],
    """cat 'a b' "c d" e\\ f""": [[("cat", "a b", "c d", "e f")]],
    """echo a'b'"c"d""": [[("echo", "abcd")]],
    """echo "a\\"b\\\\c\\$d\\e" """: [[("echo", 'a"b\\c$d\\e')]],
    "echo '$x `y` \"z\"'": [[("echo", '$x `y` "z"')]],
    'rg "foo$" src': [[("rg", "foo$", "src")]],
    "echo '' \"\"": [[("echo", "", "")]],
    "r\\m x": [[("rm", "x")]],
    "git log --format=%H@{0}": [[("git", "log", "--format=%H@{0}")]],
    "echo é 日本": [[("echo", "é", "日本")]],
    "echo a#b": [[("echo", "a#b")]],
    "echo 1 2": [[("echo", "1", "2")]],
}


@pytest.mark.parametrize("text", UNDERSTOOD)
async def test_words_are_what_the_programs_get(text: str) -> None:
    assert pipelines(await READER.read(text)) == UNDERSTOOD[text]


NOT_UNDERSTOOD = [
    "",
    " \n",
    "# only a comment",
    "ls > x",
    "ls 2>&1",
    "ls < x",
    "cat <<EOF\nx\nEOF",
    "cat <<< x",
    "echo $x",
    'echo "$x"',
    "echo ${x}",
    'echo "a`id`"',
    "echo $(id)",
    "echo `id`",
    "echo $((1+1))",
    "echo $'a'",
    'echo $"a"',
    "diff <(ls) x",
    "A=1",
    "A=1 ls",
    "export A=1",
    "ls &",
    "ls & pwd",
    "ls |& cat",
    "! ls",
    "(ls)",
    "{ ls; }",
    "if true; then ls; fi",
    "for i in a; do ls; done",
    "while true; do ls; done",
    "f() { ls; }",
    "[[ -f x ]]",
    "((1))",
    "ls {a,b}",
    "ls {1..3}",
    "ls;;",
    "ls 'x",
    'ls "x',
    "ls |",
    "ls &&",
    "ls\\",
    "ls\r-x",
    "ls\x0b-x",
    "ls\0",
]


@pytest.mark.parametrize("text", NOT_UNDERSTOOD)
async def test_what_is_more_than_words_is_not_understood(text: str) -> None:
    script = await READER.read(text)
    assert script.pipelines is None
    assert script.is_read


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("ls *.py", {"*.py"}),
        ("ls a? [ab] '*' \\*", {"a?", "[ab]"}),
        ('ls "*"x', set()),
        ("find . -name '*.py'", set()),
    ],
)
async def test_patterns_are_told_apart_from_quoted_texts(text: str, patterns: set[str]) -> None:
    script = await READER.read(text)
    words = [word for command in script.commands for word in command.words]
    assert {word.text for word in words if word.is_pattern} == patterns


@pytest.mark.parametrize(
    ("text", "is_option"),
    [("ls *", True), ("ls ./*", False), ("ls src/*", False), ("ls -*", True), ("ls ?x", True)],
)
async def test_a_pattern_at_the_start_of_a_word_may_become_an_option(
    text: str, is_option: bool
) -> None:
    (command,) = (await READER.read(text)).commands
    assert command.words[1].may_be_option is is_option


MENTIONED = {
    "rm x > y": {("rm", "x")},
    "(rm x)": {("rm", "x")},
    "if true; then rm x; fi": {("true",), ("rm", "x")},
    "f() { rm x; }": {("rm", "x")},
    "echo $(rm x)": {("echo", "$(rm x)"), ("rm", "x")},
    'echo "`rm x`"': {("echo", "`rm x`"), ("rm", "x")},
    "A=$(rm x) ls": {("ls",), ("rm", "x")},
    "cat <(rm x)": {("cat", "<(rm x)"), ("rm", "x")},
    "cat <<EOF | sh\nx\nEOF": {("cat",), ("sh",)},
    "rm x &": {("rm", "x")},
    "ls; ; rm x": {("ls",), ("rm", "x")},
}


@pytest.mark.parametrize("text", MENTIONED)
async def test_commands_are_found_wherever_they_are(text: str) -> None:
    script = await READER.read(text)
    found = {command.texts for part in script.mentioned for command in part.commands}
    assert found == MENTIONED[text]


async def test_a_command_knows_what_is_put_into_its_words() -> None:
    script = await READER.read('sh -c "$(curl $(cat x))"')
    inner = {
        tuple(each.texts for each in command.inner)
        for part in script.mentioned
        for command in part.commands
        if command.texts[0] == "sh"
    }
    assert inner == {(("curl", "$(cat x)"), ("cat", "x"))}


async def test_files_that_are_written_are_found() -> None:
    script = await READER.read("echo x > /dev/sda; cat < in >> 'a b' 2>&1 | tee y &> z")
    assert script.writes == ("/dev/sda", "a b", "1", "z")


@pytest.mark.parametrize(
    ("text", "forks"),
    [
        (":(){ :|:& };:", True),
        ("bomb() { bomb | bomb & }; bomb", True),
        ("f() { f & }", True),
        ("f() { ls | head; }", False),
        ("f() { f; }", False),
        ("ls | head", False),
    ],
)
async def test_a_function_that_multiplies_is_found(text: str, forks: bool) -> None:
    assert (await READER.read(text)).forks is forks


async def test_what_is_too_long_is_not_read() -> None:
    longest = "echo '" + "x " * (MAX_SCRIPT_BYTES // 2 - 4) + "'"
    longest += " " * (MAX_SCRIPT_BYTES - len(longest))
    assert (await READER.read(longest)).is_understood
    longer = await READER.read(longest + "x")
    assert (longer.is_read, longer.pipelines, longer.mentioned) == (False, None, ())


async def test_what_is_nested_too_deep_is_not_read() -> None:
    shallow = await READER.read("$(" * 5 + "rm x" + ")" * 5)
    assert ("rm", "x") in {c.texts for part in shallow.mentioned for c in part.commands}
    deep = await READER.read("$(" * MAX_DEPTH + "rm x" + ")" * MAX_DEPTH)
    assert (deep.is_read, deep.mentioned) == (False, ())


async def test_what_has_too_many_parts_is_not_read() -> None:
    most = "ls|" * (MAX_COMMANDS - 1) + "ls"
    assert (await READER.read(most)).is_understood
    for text in (f"ls|{most}", "echo" + " x" * MAX_NODES):
        script = await READER.read(text)
        assert (script.is_read, script.pipelines, script.mentioned) == (False, None, ())


async def test_a_script_that_a_worker_thread_reads_is_read_alike() -> None:
    line = "cat a | head -1\n"
    script = await READER.read(line * (MAX_INLINE_BYTES // len(line) + 1))
    assert {command.texts for command in script.commands} == {("cat", "a"), ("head", "-1")}


async def test_a_lone_surrogate_does_no_harm() -> None:
    assert pipelines(await READER.read("echo \ud800")) == [[("echo", "?")]]


PIECES = [*"ab'\"\\ $`*{},#~=-|;!()[]<1@^%\t\né", "&&", "\\\n"]
PRINTS = """
exec 3>&1 >/dev/null
set -f
p() {
  local line= word
  for word; do line+=", \\"$(printf %s "$word" | od -An -v -tx1 | tr -d ' \\n')\\""; done
  printf '[%s]\\n' "${line#, }" >&3
}
"""
"""Defines `p`, which writes the words that it gets, as JSON with the bytes in hexadecimal."""


@hypothesis.given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
@hypothesis.settings(max_examples=150)
async def test_bash_gets_the_words_that_were_read(pieces: list[str]) -> None:
    """What was understood means the same to bash, whatever the grammar makes of it."""
    text = "p " + "".join(pieces)
    script = await READER.read(text)
    commands = list(script.commands)
    words = [word for command in commands for word in command.words]
    hypothesis.assume(commands)
    hypothesis.assume(all(command.texts[0] == "p" for command in commands))
    hypothesis.assume(not any(word.is_pattern or word.may_have_home for word in words))
    ran = await anyio.run_process(["bash", "--norc", "-c", PRINTS + text], check=False)
    printed = [json.loads(line) for line in ran.stdout.decode().splitlines()]
    got = [tuple(bytes.fromhex(word).decode() for word in call) for call in printed]
    # The commands of a pipeline run at once.
    assert sorted(got) == sorted(command.texts[1:] for command in commands)
