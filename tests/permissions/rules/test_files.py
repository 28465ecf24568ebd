"""Files of rules: what is read of them, and what is said of those that are broken."""

from pathlib import Path

import pytest

from app_server.permissions.network import NetworkRule
from app_server.permissions.rules import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_RULES,
    BrokenRules,
    HostExecutable,
    PrefixRule,
    Rules,
    parse_rules,
    read_rules,
)

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
    assert parse_rules(PATH, text) == Rules((READ[text],))


NETWORK = {
    'network_rule(host="A.com.", protocol="https", decision="allow")': NetworkRule(
        "a.com", "https", "allow"
    ),
    'network_rule("a.com:443", "http-connect", "prompt", "why")': NetworkRule(
        "a.com", "https", "prompt", "why"
    ),
    'network_rule(host="[::1]:80", protocol="http", decision="deny")': NetworkRule(
        "::1", "http", "forbidden"
    ),
    'network_rule(host="::1", protocol="socks5_tcp", decision="forbidden")': NetworkRule(
        "::1", "socks5Tcp", "forbidden"
    ),
}


@pytest.mark.parametrize("text", NETWORK)
def test_rules_about_hosts_are_read(text: str) -> None:
    assert parse_rules(PATH, text) == Rules(networks=(NETWORK[text],))


def test_comments_and_texts_are_passed_over() -> None:
    text = '"""My rules."""\n# a comment\nprefix_rule(pattern=["a"])  # another\n'
    assert parse_rules(PATH, text) == Rules((PrefixRule((("a",),)),))
    assert parse_rules(PATH, "") == Rules()


def test_an_example_may_name_a_program_where_the_file_says_that_it_is() -> None:
    rule = 'prefix_rule(pattern=["git"], match=["/opt/git x"], not_match=["/usr/bin/git x"])'
    place = 'host_executable(name="git", paths=["/opt/git", "/opt/git"])'
    for text in (f"{rule}\n{place}", f"{place}\n{rule}"):
        assert parse_rules(PATH, text) == Rules(
            (PrefixRule((("git",),)),), executables=(HostExecutable("git", ("/opt/git",)),)
        )
    with pytest.raises(BrokenRules, match=r":2: match: '/opt/git x' is not matched"):
        parse_rules(PATH, f"\n{rule}")


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
    'foo(pattern=["git"])': (
        "foo is not known; only prefix_rule, network_rule, host_executable are"
    ),
    'network_rule(protocol="http", decision="allow")': "host: must be a text",
    'network_rule(host="*.a.com", protocol="http", decision="allow")': (
        "host: it must be a name of letters, digits, `-`, `_` and dots, or an address"
    ),
    'network_rule(host="http://a.com", protocol="http", decision="allow")': (
        "host: it must be a name of letters, digits, `-`, `_` and dots, or an address"
    ),
    'network_rule(host="127.1", protocol="http", decision="allow")': (
        "host: an IPv4 address must be four numbers"
    ),
    'network_rule(host="a.com", decision="allow")': (
        "protocol: must be one of http, https, socks5_tcp, socks5_udp"
    ),
    'network_rule(host="a.com", protocol="ftp", decision="allow")': (
        "protocol: must be one of http, https, socks5_tcp, socks5_udp"
    ),
    'network_rule(host="a.com", protocol="http")': (
        "decision: must be one of allow, prompt, forbidden"
    ),
    'network_rule(host="a.com", protocol="http", decision="allow", justification="")': (
        "justification: must be a text that is not empty"
    ),
    'host_executable(name="a/git", paths=[])': (
        "name: must be the name of a program, without a folder"
    ),
    'host_executable(name="git", paths="/git")': "paths: must be a list of texts",
    'host_executable(name="git", paths=["git"])': (
        "paths: 'git' must be absolute, and end with `git`"
    ),
    'host_executable(name="git", paths=["/bin/hg"])': (
        "paths: '/bin/hg' must be absolute, and end with `git`"
    ),
    f'host_executable(name="git", paths={["/git"] * 65})': "paths: must be at most 64",
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


def test_a_program_counts_by_its_name_where_it_should_be() -> None:
    allow, forbidden = PrefixRule((("git",),)), PrefixRule((("rm",),), "forbidden")
    anywhere = Rules((allow, forbidden))
    assert anywhere.of(["/bin/git"]) is allow
    assert anywhere.of(["/opt/git"]) is None
    assert anywhere.of(["/opt/rm", "x"]) is forbidden
    said = Rules(
        (allow, forbidden),
        executables=(
            HostExecutable("git", ("/a/git",)),
            HostExecutable("git", ("/opt/git",)),
            HostExecutable("rm", ()),
        ),
    )
    assert said.of(["git"]) is said.of(["/opt/git"]) is allow
    assert said.of(["/bin/git"]) is said.of(["/a/git"]) is None
    assert said.of(["/opt/rm"]) is forbidden
