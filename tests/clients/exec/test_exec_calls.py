"""Wrong calls of `app-server exec`: what is refused, and with which words."""

from pathlib import Path

import pytest

from app_server.cli.exec import main
from app_server.cli.exec.command_line import (
    REFUSED,
    Call,
    is_in_repository,
    make_parser,
    parse,
    read_call,
)
from tests.support.harness import claim


def call(*words: str) -> Call:
    return read_call(parse(make_parser(), words))


@claim("exec:refused")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        *([[flag, "x"], f"{flag} is not served: "] for flag in REFUSED),
        (["--color", "always"], "argument --color: invalid choice: 'always'"),
        (["--last", "x"], "--last is for resume"),
        (["--uncommitted"], "--uncommitted is for review"),
        (["resume", "--ephemeral", "--last"], "--ephemeral is for new threads and fork and review"),
        (["resume"], "resume needs the id or the name of a thread, or --last"),
        (["fork"], "fork needs the id or the name of a thread"),
        (["review"], "review needs one of --uncommitted, --base, --commit and a prompt"),
        (["review", "--commit", "x", "--base", "y"], "review needs one of"),
        (["one", "two"], "one prompt is one word of the command line: quote it ('two')"),
        (["--dangerously-bypass-approvals-and-sandbox", "-s", "read-only", "x"], "goes without"),
        (["-c", "nonsense", "x"], "cannot read --config 'nonsense': use key=value"),
        (["--nonsense", "x"], "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_call_is_refused_with_a_sentence(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert (ended.value.code, text in capsys.readouterr().err) == (2, True)


def test_words_are_read_wherever_they_stand() -> None:
    assert call("--json", "Hi.", "--model", "m") == Call("", None, "Hi.")
    assert call("--model", "m", "resume", "ID", "--image", "a", "b") == Call("resume", "ID", None)
    assert call("resume", "--last", "Hi.") == Call("resume", None, "Hi.")
    assert call("fork", "ID", "-") == Call("fork", "ID", "-")
    assert call("review", "--base", "main") == Call("review", None, None)
    assert call("-i", "a", "--", "--json") == Call("", None, "--json")


@claim("exec:refused")
def test_a_folder_without_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / ".git").write_text("gitdir: elsewhere")
    assert is_in_repository(tmp_path / "in" / "deep")
    outside = tmp_path / "out"
    outside.mkdir()
    if is_in_repository(outside):
        # The folder for temporary files is in one.
        return
    assert main(["--cd", str(outside), "Hi."]) == 1
    assert f"Not inside a trusted directory: {outside}" in capsys.readouterr().err
