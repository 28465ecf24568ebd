"""Rules, profiles and scripts at their bounds, and words at their edges."""

import errno
from pathlib import Path

import pytest

from app_server.config.values import Config, ConfigError
from app_server.permissions.commands.wrappers import inline_script
from app_server.permissions.profiles import read_profile
from app_server.permissions.rules import BrokenRules, parse_rules, read_rules
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling
from app_server.permissions.shell import parse
from app_server.permissions.shell.actions import command_actions
from app_server.permissions.shell.parse import ShellGrammar, read_word

READER = ShellGrammar()


def test_a_profile_has_512_entries() -> None:
    def entries(count: int) -> int:
        places = {f"/p{number}": "read" for number in range(count)}
        config = Config({"permissions": {"a": {"filesystem": places}}})
        return len(read_profile(config, "a", "/home/me").entries)

    assert entries(512) == 512
    with pytest.raises(ConfigError, match="more than 512 entries"):
        entries(513)


def test_a_program_has_a_bounded_number_of_places() -> None:
    def rule(count: int) -> str:
        paths = ", ".join(f'"/bin{number}/git"' for number in range(count))
        return f'host_executable(name="git", paths=[{paths}])'

    path = Path("/rules")
    most = next(n for n in range(1, 10_000) if _is_refused(rule(n + 1)))
    assert most == 64
    assert len(parse_rules(path, rule(most)).executables) == 1
    with pytest.raises(BrokenRules, match="paths: must be at most 64"):
        parse_rules(path, rule(most + 1))


def _is_refused(text: str) -> bool:
    try:
        parse_rules(Path("/rules"), text)
    except BrokenRules:
        return True
    return False


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("odd"), "it cannot be read"),
    ],
)
def test_a_folder_of_rules_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, reason: str
) -> None:
    def fail(self: Path) -> list[Path]:
        raise failure

    monkeypatch.setattr(Path, "iterdir", fail)
    rules, broken = read_rules(tmp_path)
    assert (rules.count, [str(each) for each in broken]) == (0, [f"{tmp_path}: {reason}"])


@pytest.mark.parametrize(
    ("place", "path", "access"),
    [
        # Prohibitions and protections hold in any case, what is given in its own.
        ("denied", "/WORK/a", "none"),
        ("protected", "/WORK/a", "read"),
        ("writable", "/WORK/a", "none"),
        ("readable", "/WORK/a", "none"),
        ("denied", "/work/a", "none"),
        ("protected", "/work/a", "read"),
        ("writable", "/work/a", "write"),
        ("readable", "/work/a", "read"),
        ("writable", "/Place/a", "write"),
        ("readable", "/Place/a", "read"),
        ("denied", "/place/a", "none"),
    ],
)
def test_names_that_differ_in_case_are_one_for_what_is_forbidden(
    place: str, path: str, access: str
) -> None:
    given = {
        "writable": (),
        "readable": (),
        "denied": (),
        "protected": (),
        place: ("/work", "/Place"),
    }
    assert Ruling(EffectivePolicy(**given)).access(path) == access  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("cat < in", ()),
        ("cat << END\nx\nEND", ()),
        ("cat 3< in", ()),
        ("echo x >| out", ("out",)),
        ("echo x 2> out", ("out",)),
        ("cat < in > out", ("out",)),
    ],
)
async def test_only_what_is_redirected_to_is_written(text: str, writes: tuple[str, ...]) -> None:
    assert (await READER.read(text)).writes == writes


@pytest.mark.parametrize(
    ("source", "text", "is_literal"),
    [
        ('"a\\b"', "a\\b", True),
        ('"a\\"b"', 'a"b', True),
        ('"a\nb"', "a\nb", True),
        ('"a\\\nb"', None, False),
        ('"a`b`"', None, False),
        ('"a$b"', None, False),
        ('"a\\$b"', "a$b", True),
        ('"a', None, False),
        ("'a", None, False),
        ("'a\\'", "a\\", True),
    ],
)
def test_what_a_shell_puts_into_quotes_is_no_literal(
    source: str, text: str | None, is_literal: bool
) -> None:
    word = read_word(source)
    assert word.is_literal is is_literal
    if text is not None:
        assert word.text == text


async def test_a_script_has_10000_parts() -> None:
    assert parse.MAX_NODES == 10_000
    assert not (await READER.read("a;" * 10_000)).is_understood


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (("watch", "ls"), "ls"),
        (("watch",), None),
        (("su", "me"), "me"),
        (("parallel", "-j", "rm"), "rm"),
        (("eval",), ""),
        (("eval", "a", "b"), "a b"),
        (("sh",), None),
        (("sh", "file"), None),
        (("sh", "-c"), None),
        (("sh", "-c", "ls"), "ls"),
        (("bash", "-lc", "ls", "x"), "ls"),
        (("bash", "--norc", "-c", "-e", "ls"), "ls"),
        (("bash", "--rcfile", "ls"), None),
        (("ls", "-c", "rm"), None),
    ],
)
def test_the_script_that_a_shell_is_given_is_found(
    words: tuple[str, ...], script: str | None
) -> None:
    assert inline_script(words) == script


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("cat a | sed -n 1,5p", True),
        ("cat a | sed -e 1p", True),
        ("cat a | sed --expression=1p", True),
        ("cat a | sed -e", False),
        ("cat a | sed -ni 1p", False),
        ("cat a | sed -i 1p", False),
        ("cat a | sed --in-place 1p", False),
        ("cat a | sed --in-place=x 1p", False),
    ],
)
async def test_a_filter_that_only_shapes_leaves_a_read_one(text: str, is_read: bool) -> None:
    found = command_actions(await READER.read(text), "/work")
    assert [action.model_dump()["type"] for action in found] == ["read" if is_read else "unknown"]
