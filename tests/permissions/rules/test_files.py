"""Files of rules: what is read of them, and what is said of those that are broken."""

from pathlib import Path

import pytest

from app_server.permissions.rules.files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_RULES,
    BrokenRules,
    parse_rules,
    read_rules,
)
from app_server.permissions.rules.rule import PrefixRule, Rules

PATH = Path("/home/me/rules/mine.rules")

READ = {
    'prefix_rule(pattern=["git", "push"])': PrefixRule((("git",), ("push",))),
    'prefix_rule(["git"], "forbidden")': PrefixRule((("git",),), "forbidden"),
    "prefix_rule(pattern = ['git', ['pull', \"fetch\"],], decision = 'prompt',)": PrefixRule(
        (("git",), ("pull", "fetch")), "prompt"
    ),
    'prefix_rule(pattern=["rm"], decision="forbidden", justification="no")': PrefixRule(
        (("rm",),), "forbidden", "no"
    ),
    'prefix_rule(pattern=["a"], match=["a b", ["a", "c d"]], not_match=["b", "ab"])': PrefixRule(
        (("a",),)
    ),
    'prefix_rule(pattern=["a", "b c", "\\u00e9\\n"])': PrefixRule((("a",), ("b c",), ("é\n",))),
}


@pytest.mark.parametrize("text", READ)
def test_rules_are_read(text: str) -> None:
    assert parse_rules(PATH, text) == (READ[text],)


def test_comments_texts_and_calls_of_codex_that_say_nothing_of_commands_are_passed_over() -> None:
    text = (
        '"""My rules."""\n# a comment\nprefix_rule(pattern=["a"])  # another\n\n'
        'network_rule(host="a.com", protocol="https", decision="allow")\n'
        'host_executable(name="git", paths=["/usr/bin/git"])\n'
    )
    assert parse_rules(PATH, text) == (PrefixRule((("a",),)),)
    assert parse_rules(PATH, "") == ()


BROKEN = {
    "prefix_rule(pattern=[])": "pattern: must be a list that is not empty",
    "prefix_rule()": "pattern: must be a list that is not empty",
    'prefix_rule(pattern="git")': "pattern: must be a list that is not empty",
    'prefix_rule(pattern=("git",))': "pattern: must be a list that is not empty",
    'prefix_rule(pattern=["git", []])': (
        "pattern: each part must be a text, or a list of texts that is not empty"
    ),
    'prefix_rule(pattern=["git", 1])': (
        "pattern: each part must be a text, or a list of texts that is not empty"
    ),
    'prefix_rule(pattern=["git"], decision="maybe")': (
        "decision: must be one of allow, prompt, forbidden"
    ),
    'prefix_rule(pattern=["git"], decision=None)': (
        "decision: must be one of allow, prompt, forbidden"
    ),
    'prefix_rule(pattern=["git"], decision=["allow"])': (
        "decision: must be one of allow, prompt, forbidden"
    ),
    'prefix_rule(pattern=["git"], justification=" ")': (
        "justification: must be a text that is not empty"
    ),
    'prefix_rule(pattern=["git"], justification=1)': (
        "justification: must be a text that is not empty"
    ),
    'prefix_rule(pattern=["git"], match=["ls -l"])': "match: 'ls -l' is not matched by the pattern",
    'prefix_rule(pattern=["git"], not_match=["git x"])': (
        "not_match: 'git x' is matched by the pattern"
    ),
    'prefix_rule(pattern=["git"], match="git")': "match: must be a list",
    'prefix_rule(pattern=["git"], match=[1])': (
        "match: each must be a command line, or a list of its words"
    ),
    'prefix_rule(pattern=["git"], match=[""])': "match: a command line must not be empty",
    'prefix_rule(pattern=["git"], match=["git \\"a"])': "match: 'git \"a' is no command line",
    'prefix_rule(pattern=["git"], foo=1)': (
        "foo: prefix_rule knows pattern, decision, match, not_match, justification"
    ),
    'prefix_rule(pattern=["git"], **{})': (
        "**: prefix_rule knows pattern, decision, match, not_match, justification"
    ),
    'prefix_rule(["git"], pattern=["git"])': "pattern: is given twice",
    'prefix_rule(["a"], "allow", [], [], "why", 1)': "prefix_rule: too many values",
    'prefix_rule(pattern=[open("/etc/passwd").read()])': "pattern: must be a literal value",
    'prefix_rule(pattern=["a"] * 1000000000)': "pattern: must be a literal value",
    'prefix_rule(pattern=[f"{1}"])': "pattern: must be a literal value",
    "prefix_rule(pattern=NAME)": "pattern: must be a literal value",
    'x = ["git"]': "only calls of prefix_rule with literal values are understood",
    "import os": "only calls of prefix_rule with literal values are understood",
    'os.system("x")': "only calls of prefix_rule with literal values are understood",
    '[prefix_rule(pattern=["a"]) for _ in "ab"]': (
        "only calls of prefix_rule with literal values are understood"
    ),
    'foo(pattern=["git"])': "foo is not known; only prefix_rule is",
    'prefix_rule(pattern=["git"': "'[' was never closed",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_named_with_its_line(text: str) -> None:
    with pytest.raises(BrokenRules) as caught:
        parse_rules(PATH, f'prefix_rule(pattern=["ls"])\n\n{text}\n')
    assert caught.value.path == PATH
    assert caught.value.line == 3
    assert str(caught.value) == f"{PATH}:3: {BROKEN[text]}"


@pytest.mark.parametrize("text", ["(" * 10_000, "\0", "-" * 100_000 + "1", "[" * 300 + "]" * 300])
def test_text_that_no_parser_takes_is_an_error_like_others(text: str) -> None:
    with pytest.raises(BrokenRules):
        parse_rules(PATH, text)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file of rules."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_all_files_hold_but_for_those_that_are_broken(tmp_path: Path) -> None:
    write(tmp_path, "b.rules", 'prefix_rule(pattern=["b"])')
    write(tmp_path, "a.rules", 'prefix_rule(pattern=["a"])')
    write(tmp_path, "notes.txt", "no rules")
    first = write(tmp_path, "c.rules", 'prefix_rule(pattern=["c"])\noops')
    second = write(tmp_path, "d.rules", b"\xff")
    third = write(tmp_path, "e.rules", b"#" * (MAX_FILE_BYTES + 1))
    (tmp_path / "f.rules").mkdir()
    rules, broken = read_rules(tmp_path)
    assert rules == Rules((PrefixRule((("a",),)), PrefixRule((("b",),))))
    assert list(map(str, broken)) == [
        f"{first}:2: only calls of prefix_rule with literal values are understood",
        f"{second}: it is not UTF-8",
        f"{third}: it is larger than {MAX_FILE_BYTES} bytes",
        f"{tmp_path / 'f.rules'}: Is a directory",
    ]


def test_the_number_of_files_and_of_rules_is_bounded(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        write(tmp_path, f"{number:03}.rules", 'prefix_rule(pattern=["a"])')
    rules, broken = read_rules(tmp_path)
    assert len(rules.prefixes) == MAX_FILES
    assert [problem.path.name for problem in broken] == [f"{MAX_FILES:03}.rules"]
    write(tmp_path, "000.rules", 'prefix_rule(pattern=["a"])\n' * MAX_RULES)
    rules, broken = read_rules(tmp_path)
    assert len(rules.prefixes) == MAX_RULES
    assert str(broken[1]) == f"{tmp_path / '001.rules'}: there are more than {MAX_RULES} rules"


def test_no_folder_means_no_rules(tmp_path: Path) -> None:
    assert read_rules(tmp_path / "rules") == (Rules(), [])
    write(tmp_path, "rules", "")
    assert read_rules(tmp_path / "rules") == (Rules(), [])


def test_the_strictest_rule_holds() -> None:
    allow = PrefixRule((("git",),), "allow")
    prompt = PrefixRule((("git",), ("push", "pull")), "prompt")
    forbidden = PrefixRule((("git",), ("push",), ("-f",)), "forbidden")
    rules = Rules((allow, forbidden, prompt))
    assert rules.of(["git", "status"]) is allow
    assert rules.of(["git", "pull"]) is prompt
    assert rules.of(["git", "push", "-f"]) is forbidden
    assert rules.of(["/usr/bin/git", "push", "-f"]) is forbidden
    assert rules.of(["./git", "push", "-f"]) is None
    assert rules.of(["gitk"]) is None
