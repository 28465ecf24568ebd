"""Which files a profile lets be read, and which projects are trusted: rules about real paths."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.permissions.readable import NOTHING, Readable, parts_of, readable, reads_everything
from app_server.permissions.trust import project_trust

ROOT = {"type": "special", "value": {"kind": "root"}}


def at(path: str) -> dict[str, Any]:
    return {"type": "path", "path": path}


def glob(pattern: str) -> dict[str, Any]:
    return {"type": "glob_pattern", "pattern": pattern}


def special(kind: str, **more: str) -> dict[str, Any]:
    return {"type": "special", "value": {"kind": kind, **more}}


def profile(*entries: Any) -> dict[str, Any]:
    listed = [
        {"path": entry[0], "access": entry[1]} if isinstance(entry, tuple) else entry
        for entry in entries
    ]
    return {"type": "managed", "file_system": {"entries": listed}}


def allowed(rules: Readable, *paths: str) -> list[bool]:
    return [rules.allows(parts_of(path)) for path in paths]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


# Everything.


@pytest.mark.parametrize(
    ("given", "everything"),
    [
        ({"type": "disabled"}, True),
        ({"type": "external"}, True),
        ({"type": "other"}, False),
        ({}, False),
        (None, False),
        (profile((ROOT, "read")), True),
        (profile((ROOT, "write"), (at("/a"), "read")), True),
        (profile((ROOT, "read"), (at("/a"), "deny")), False),
        (profile((ROOT, "read"), (at("/a"), "unknown")), False),
        (profile((ROOT, "read"), "unknown"), False),
        (profile((ROOT, "deny")), False),
        (profile((at("/"), "read")), False),
        (profile(), False),
    ],
)
def test_a_profile_reads_everything_where_it_says_so_and_forbids_nothing(
    given: Any, everything: bool
) -> None:
    assert reads_everything(given) is everything


# Rules.


def test_the_nearest_rule_counts_and_of_two_the_prohibition(folder: str) -> None:
    rules = readable(
        profile(
            (at(folder), "read"),
            (at(f"{folder}/secret"), "deny"),
            (at(f"{folder}/secret/open"), "write"),
            (at(f"{folder}/both"), "read"),
            (at(f"{folder}/both"), "none"),
        ),
        "/",
    )
    assert not rules.is_empty
    assert allowed(
        rules,
        *(folder, f"{folder}/a", f"{folder}/secret", f"{folder}/secret/a"),
        *(f"{folder}/secret/open", f"{folder}/secret/open/a", f"{folder}/both/a"),
        *(f"{folder}x", str(Path(folder).parent), "/"),
    ) == [True, True, False, False, True, True, False, False, False, False]


def test_prohibitions_hold_in_any_case_and_permissions_in_theirs(folder: str) -> None:
    rules = readable(profile((at(folder), "read"), (at(f"{folder}/Secret"), "deny")), "/")
    assert allowed(rules, f"{folder}/SECRET/a", f"{folder}/secret") == [False, False]
    assert allowed(rules, f"{folder.upper()}/a") == [False]


def test_each_kind_of_place_is_known(folder: str) -> None:
    def places(path: dict[str, Any], **environ: str) -> list[str]:
        rules = readable(profile((path, "read")), folder, environ).rules
        return ["/" + "/".join(rule.parts) for rule in rules]

    assert places(ROOT) == ["/"]
    assert places(special("slash_tmp")) == [os.path.realpath("/tmp")]
    assert places(special("tmpdir"), TMPDIR=folder) == [folder]
    assert places(special("tmpdir"), TMPDIR="relative") == []
    assert places(special("tmpdir")) == []
    assert places(special("project_roots")) == [folder]
    assert places(special("project_roots", subpath="a/b")) == [f"{folder}/a/b"]
    assert places(at("relative")) == []
    assert places(special("unknown")) == []
    assert places({"type": "unknown"}) == []
    os.symlink(folder, f"{folder}/link")
    assert places(at(f"{folder}/link/a")) == [f"{folder}/a"]


@pytest.mark.parametrize(
    "entry",
    [
        (special("unknown"), "deny"),
        (at("relative"), "deny"),
        (at("relative"), "none"),
        (at("/a"), "unknown"),
        {"path": at("/a")},
        "unknown",
        (glob("/a/[b]*"), "deny"),
        (glob("/a/{b,c}"), "none"),
        (glob("/a/*/../b"), "deny"),
        (glob("/a/\0*"), "deny"),
    ],
)
def test_what_may_forbid_and_is_not_understood_forbids_everything(entry: Any) -> None:
    assert readable(profile((ROOT, "read"), entry), "/") is NOTHING


def test_what_may_allow_and_is_not_understood_allows_nothing(folder: str) -> None:
    for path in (special("unknown"), at("relative"), glob("/[a]*"), glob(f"{folder}/*")):
        rules = readable(profile((path, "read")), "/")
        assert rules.is_empty
        assert allowed(rules, f"{folder}/a") == [False]
    assert readable({"type": "disabled"}, "/") is NOTHING
    assert NOTHING.is_empty
    assert readable(profile((at("/a"), "deny")), "/").is_empty


def test_a_profile_has_1024_entries() -> None:
    entries = [(at(f"/p{number}"), "read") for number in range(1025)]
    assert len(readable(profile(*entries[:1024]), "/").rules) == 1024
    assert readable(profile(*entries), "/") is NOTHING


@pytest.mark.parametrize(
    ("pattern", "forbidden", "open_"),
    [
        ("{}/*.key", ["a.key", "A.KEY", "b/c.key", "a.key/below"], ["a.keys", "key", "b"]),
        ("{}/**/*.key", ["b/a.key", "b/c/a.key", "a.key"], ["akey"]),
        ("{}/?", ["a", "b/c"], ["ab"]),
        ("{}/b*/c", ["b/c", "bx/c", "b/x/c", "b/c/d"], ["c", "b/d"]),
        ("{}/plain", ["plain", "PLAIN/a"], ["plainer", "a/plain"]),
        ("*.env", ["a.env", "b/.env"], ["env"]),
        ("sub/*.env", ["sub/a.env"], ["a.env"]),
        ("{}/link/*", ["b/a"], ["c"]),
        ("{}/a.b*", ["a.b", "a.bc"], ["aXb"]),
    ],
)
def test_a_pattern_forbids_at_least_what_it_matches(
    folder: str, pattern: str, forbidden: list[str], open_: list[str]
) -> None:
    os.mkdir(f"{folder}/b")
    os.symlink(f"{folder}/b", f"{folder}/link")
    entries = [(at(folder), "read"), (glob(pattern.replace("{}", folder)), "deny")]
    rules = readable(profile(*entries), folder)
    found = {path: rules.allows(parts_of(f"{folder}/{path}")) for path in forbidden + open_}
    assert found == dict.fromkeys(forbidden, False) | dict.fromkeys(open_, True)


# Trust.


def trusting(*folders: str) -> Config:
    return Config({"projects": {each: {"trust_level": "trusted"} for each in folders}})


def test_a_folder_is_trusted_by_its_name_or_that_of_its_repository(folder: str) -> None:
    for path in ("repo/.git/worktrees/w", "repo/sub", "outside", "tree/sub"):
        os.makedirs(f"{folder}/{path}")
    Path(folder, "repo/.git/HEAD").write_text("ref: refs/heads/main\n")
    Path(folder, "tree/.git").write_text(f"gitdir: {folder}/repo/.git/worktrees/w\n")
    Path(folder, "repo/.git/worktrees/w/commondir").write_text("../..\n")
    back = Path(folder, "repo/.git/worktrees/w/gitdir")
    back.write_text(f"{folder}/tree/.git\n")
    os.symlink(f"{folder}/repo", f"{folder}/link")
    config = trusting(f"{folder}/repo")
    levels = {
        name: project_trust(config, f"{folder}/{name}")
        for name in ("repo", "repo/sub", "link", "outside", "tree", "tree/sub")
    }
    assert levels == {
        **dict.fromkeys(("repo", "repo/sub", "link", "tree", "tree/sub"), "trusted"),
        "outside": None,
    }
    # A worktree of which its repository knows nothing has a name of its own alone.
    for content in (f"{folder}/other/.git\n", ""):
        back.write_text(content)
        assert project_trust(config, f"{folder}/tree") is None
    back.unlink()
    assert project_trust(config, f"{folder}/tree") is None
    assert project_trust(trusting(f"{folder}/tree"), f"{folder}/tree/sub") == "trusted"
    # Only the nearest repository is asked about.
    assert project_trust(trusting(folder), f"{folder}/repo/sub") is None
