"""Where hooks are declared, and what is said of those that cannot run."""

from pathlib import Path

from app_server.extensions.hooks.definition import Hook
from app_server.extensions.hooks.hook_files import MAX_HOOKS, places_of, read_hooks
from tests.support.files.hooks import declared, group


def test_hooks_of_all_files_are_in_one_order(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".codex").mkdir(parents=True)
    (home / "hooks.json").write_text(declared(Stop=[group("a")], PreToolUse=[group("b")]))
    (project / ".codex/hooks.json").write_text(declared(PreToolUse=[group("c"), group("d")]))
    (project / ".codex/config.toml").write_text(
        f"""
        [[hooks.Stop]]
        hooks = [{{ type = "command", command = "f" }}]
        [hooks.state."{project}/.codex/config.toml:stop:0:0"]
        trusted_hash = "of the project itself"
        """
    )
    settings = {
        "hooks": {
            "Stop": [group("e")],
            "state": {f"{home}/hooks.json:stop:0:0": {"enabled": False, "trusted_hash": "x"}},
        }
    }
    found = read_hooks(places_of(home, [project]), settings, home / "config.toml")
    assert found.warnings == [
        f"hooks of {folder}/hooks.json and of {folder}/config.toml run: one file would do"
        for folder in (home, project / ".codex")
    ]
    assert found.errors == []
    assert [(hook.command, hook.source, hook.order) for hook in found.hooks] == [
        ("b", "user", 0),
        ("c", "project", 1),
        ("d", "project", 2),
        ("a", "user", 3),
        ("e", "user", 4),
        ("f", "project", 5),
    ]
    assert found.hooks[5].trusted_hash is None
    assert [hook.key for hook in found.hooks[1:4]] == [
        f"{project}/.codex/hooks.json:pre_tool_use:0:0",
        f"{project}/.codex/hooks.json:pre_tool_use:1:0",
        f"{home}/hooks.json:stop:0:0",
    ]
    assert [hook.is_enabled for hook in found.hooks] == [True, True, True, False, True, True]


def test_what_cannot_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "hooks.json").write_text(
        declared(
            Stop=[
                {"hooks": [{"type": "prompt"}, {"type": "command"}, 5]},
                group("x" * 16_385),
                {"hooks": [{"type": "command", "command": "x", "timeout": 0}]},
                {"hooks": [{"type": "command", "command": "x", "async": True}]},
                group("x", matcher="["),
            ],
            Nonsense=[],
        )
    )
    found = read_hooks(places_of(tmp_path, []), {}, tmp_path / "config.toml")
    file = tmp_path / "hooks.json"
    assert found.hooks == []
    assert found.warnings == [
        f"{file}: Stop[0].hooks[0]: hooks of type `prompt` are not run by this server",
        f"{file}: Stop[0].hooks[1]: `command` is missing",
        f"{file}: Stop[0].hooks[2]: hooks of type `None` are not run by this server",
        f"{file}: Stop[1].hooks[0]: `command` has more than 16384 characters",
        f"{file}: Stop[2].hooks[0]: `timeout` must be 1 to 3600 seconds",
        f"{file}: Stop[3].hooks[0]: `async` hooks are not run by this server",
        f"{file}: Stop[4].hooks[0]: `matcher` is no regular expression: "
        "unterminated character set at position 0",
        f"{file}: hooks of `Nonsense` are not run by this server",
    ]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    texts = {"a": "{", "b": "[]", "c": "{}", "d": " " * (256 * 1024 + 1)}
    for name, text in texts.items():
        (tmp_path / name / ".codex").mkdir(parents=True)
        (tmp_path / name / ".codex/hooks.json").write_text(text)
    (tmp_path / "e/.codex/hooks.json").mkdir(parents=True)
    folders = [tmp_path / name for name in "abcdef"]
    found = read_hooks(places_of(tmp_path, folders), {}, tmp_path / "config.toml")
    assert [(file.parent.parent.name, text.split(":")[0]) for file, text in found.errors] == [
        ("a", "is not JSON"),
        ("b", "`hooks` is missing, or no object"),
        ("c", "`hooks` is missing, or no object"),
        ("d", "is larger than 262144 bytes"),
        ("e", "cannot be read"),
    ]


def test_a_settings_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text("hooks = [")
    found = read_hooks(places_of(tmp_path, [tmp_path]), {}, tmp_path / "config.toml")
    ((file, text),) = found.errors
    assert file == tmp_path / ".codex/config.toml"
    assert text == f"{file}: Invalid value (at end of document)"


def test_hooks_of_settings_that_are_no_table_are_none(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text("hooks = 5")
    found = read_hooks(places_of(tmp_path, [tmp_path]), {}, tmp_path / "config.toml")
    assert (found.hooks, found.warnings, found.errors) == ([], [], [])


def test_hooks_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "hooks.json").write_text(declared(Stop=[group("x")] * (MAX_HOOKS + 1)))
    found = read_hooks(places_of(tmp_path, []), {}, tmp_path / "config.toml")
    assert len(found.hooks) == MAX_HOOKS
    assert found.warnings == [f"there are over {MAX_HOOKS} hooks: the last ones do not run"]


def test_a_matcher_matches_the_whole_subject() -> None:
    def matches(matcher: str | None, subject: str) -> bool:
        file = Path("/hooks.json")
        return Hook("PreToolUse", matcher, "x", 1, None, file, "user", 0, 0, 0).matches(subject)

    cases = [(None, True), ("", True), ("*", True), ("Bash", True), ("Ba", False), ("E|B.*", True)]
    assert [matches(matcher, "Bash") for matcher, _ in cases] == [wanted for _, wanted in cases]
