"""Where repositories with plugins are, as users and settings write it."""

from typing import Any

import pytest

from app_server.extensions.plugins.git_source import (
    BadSource,
    GitSource,
    git_source_of,
    is_local,
    parse_git_source,
    pinned,
)


@pytest.mark.parametrize(
    ("text", "ref", "source"),
    [
        ("owner/repo", None, GitSource("https://github.com/owner/repo.git")),
        ("owner/repo@v1", None, GitSource("https://github.com/owner/repo.git", "v1")),
        ("owner/repo@v1", "main", GitSource("https://github.com/owner/repo.git", "main")),
        ("owner/repo#a/b", None, GitSource("https://github.com/owner/repo.git", "a/b")),
        ("https://github.com/owner/repo/", None, GitSource("https://github.com/owner/repo.git")),
        ("https://a.example/x/y#v1", None, GitSource("https://a.example/x/y", "v1")),
        ("http://127.0.0.1:80/x#", None, GitSource("http://127.0.0.1:80/x")),
        ("git@a.example:x/y.git#v1", None, GitSource("git@a.example:x/y.git", "v1")),
        ("ssh://git@a.example/x.git", "v1", GitSource("ssh://git@a.example/x.git", "v1")),
    ],
)
def test_a_repository_is_read_with_its_revision(
    text: str, ref: str | None, source: GitSource
) -> None:
    assert not is_local(text)
    assert parse_git_source(text, ref) == source


@pytest.mark.parametrize("text", ["/x", "~/x", "./x", "../x", ".", ".."])
def test_a_folder_is_no_repository(text: str) -> None:
    assert is_local(text)


def test_a_commit_takes_the_place_of_a_revision() -> None:
    source = GitSource("https://a.example/x", "main")
    assert pinned(source, None) == source
    assert pinned(source, "a" * 40) == GitSource("https://a.example/x", "a" * 40)
    with pytest.raises(BadSource, match="full name of a commit"):
        pinned(source, "a" * 39)


@pytest.mark.parametrize(
    ("table", "source"),
    [
        (
            {"source_type": "git", "source": "owner/x", "ref": "v", "sparse_paths": ["a"]},
            GitSource("https://github.com/owner/x.git", "v", ("a",)),
        ),
        ({"source_type": "local", "source": "owner/x"}, None),
        ({"source_type": "git"}, None),
        ({"source_type": "git", "source": "-x"}, None),
        ({"source_type": "git", "source": "-o@a.example:x"}, None),
        ({"source_type": "git", "source": "git@-oProxyCommand:x"}, None),
        ({"source_type": "git", "source": "owner/x", "ref": 1}, None),
        ({"source_type": "git", "source": "owner/x", "sparse_paths": "a"}, None),
    ],
)
def test_settings_that_make_no_sense_are_no_repository(
    table: dict[str, Any], source: GitSource | None
) -> None:
    assert git_source_of(table) == source
