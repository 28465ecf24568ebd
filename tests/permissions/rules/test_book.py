"""The rules of a home: followed while files change, added to by several servers at once."""

import multiprocessing
import os
from pathlib import Path

import anyio
import pytest

from app_server.permissions.network import NetworkRule
from app_server.permissions.rules import (
    MAX_FILE_BYTES,
    BrokenRules,
    NotLearned,
    PrefixRule,
    RuleBook,
    Rules,
)

A = PrefixRule((("a",),))
B = PrefixRule((("b",),))


async def test_rules_are_read_again_when_a_file_has_changed(tmp_path: Path) -> None:
    told: list[BrokenRules] = []
    book = RuleBook(tmp_path, told.append)
    assert await book.current() == Rules()
    file = tmp_path / "rules" / "mine.rules"
    file.parent.mkdir()
    file.write_text('prefix_rule(pattern=["a"])')
    assert await book.current() == Rules((A,))
    file.write_text('prefix_rule(pattern=["b"])  # other')
    assert await book.current() == Rules((B,))
    file.unlink()
    assert await book.current() == Rules()
    assert told == []


async def test_a_broken_file_is_reported_once_for_each_of_its_states(tmp_path: Path) -> None:
    told: list[BrokenRules] = []
    book = RuleBook(tmp_path, told.append)
    file = tmp_path / "rules" / "mine.rules"
    file.parent.mkdir()
    file.write_text("oops")
    for _ in range(3):
        assert await book.current() == Rules()
    assert [problem.line for problem in told] == [1]
    file.write_text("\n\noops")
    await book.current()
    assert [problem.line for problem in told] == [1, 3]


async def test_a_learned_rule_is_one_line_that_codex_reads_too(tmp_path: Path) -> None:
    book = RuleBook(tmp_path)
    await book.learn(["git", "push"])
    await book.learn(["touch", 'a "b" \\ é\n'])
    await book.learn(["git", "push"])
    file = tmp_path / "rules" / "default.rules"
    assert file.read_text() == (
        'prefix_rule(pattern=["git", "push"], decision="allow")\n'
        'prefix_rule(pattern=["touch", "a \\"b\\" \\\\ é\\n"], decision="allow")\n'
    )
    assert file.stat().st_mode & 0o777 == 0o600
    learned = PrefixRule((("touch",), ('a "b" \\ é\n',)))
    assert await book.current() == Rules((PrefixRule((("git",), ("push",))), learned))


async def test_a_learned_rule_about_a_host_is_one_line_that_codex_reads_too(tmp_path: Path) -> None:
    book = RuleBook(tmp_path)
    allowed = NetworkRule("a.com", "https", "allow", 'Allow https access to "a.com"')
    denied = NetworkRule("::1", "socks5Tcp", "forbidden")
    for rule in (allowed, denied, allowed):
        await book.learn_network(rule)
    assert (tmp_path / "rules" / "default.rules").read_text() == (
        'network_rule(host="a.com", protocol="https", decision="allow", '
        'justification="Allow https access to \\"a.com\\"")\n'
        'network_rule(host="::1", protocol="socks5_tcp", decision="deny")\n'
    )
    assert await book.current() == Rules(networks=(allowed, denied))


async def test_what_is_in_the_file_stays(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.rules"
    real.write_text('# mine\nprefix_rule(pattern=["a"])')
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "default.rules").symlink_to(real)
    book = RuleBook(tmp_path)
    await book.learn(["b"])
    assert (folder / "default.rules").is_symlink()
    assert real.read_text() == (
        '# mine\nprefix_rule(pattern=["a"])\nprefix_rule(pattern=["b"], decision="allow")\n'
    )
    assert await book.current() == Rules((A, B))


@pytest.mark.parametrize(
    "words", [[], [""], ["a", ""], ["a"] * 65, ["a" * 4_097], ["\ud800"]], ids=repr
)
async def test_what_makes_no_rule_is_not_written(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(NotLearned):
        await RuleBook(tmp_path).learn(words)
    assert not (tmp_path / "rules" / "default.rules").exists()


async def test_a_broken_file_is_not_added_to(tmp_path: Path) -> None:
    file = tmp_path / "rules" / "default.rules"
    file.parent.mkdir()
    for content in ("oops\n", "#" * MAX_FILE_BYTES):
        file.write_text(content)
        with pytest.raises(NotLearned):
            await RuleBook(tmp_path).learn(["a"])
        assert file.read_text() == content


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("a file")
    with pytest.raises(NotLearned, match=r"Not a directory|File exists"):
        await RuleBook(tmp_path).learn(["a"])
    with pytest.raises(NotLearned, match="there is no home folder"):
        await RuleBook().learn(["a"])


RULES_EACH = 20


def _learn_many(home: str, name: str) -> None:
    async def learn() -> None:
        book = RuleBook(Path(home))
        for number in range(RULES_EACH):
            await book.learn([name, str(number)])

    anyio.run(learn)


async def test_servers_that_learn_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    names = ["a", "b", "c"]
    processes = [context.Process(target=_learn_many, args=(str(tmp_path), n)) for n in names]
    for process in processes:
        process.start()
    for process in processes:
        await anyio.to_thread.run_sync(process.join)
        assert process.exitcode == 0
    rules = await RuleBook(tmp_path).current()
    found = {rule.pattern for rule in rules.prefixes}
    assert found == {((n,), (str(k),)) for n in names for k in range(RULES_EACH)}
    assert sorted(os.listdir(tmp_path / "rules")) == [".lock", "default.rules"]
