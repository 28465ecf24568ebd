"""Paths with `~`, for users who exist, who do not, and who have no home folder."""

import pwd
from pathlib import Path

import pytest

from app_server.config.home import resolve_home
from app_server.extensions.plugins.marketplace import configured_roots
from app_server.runtime.user_paths import expand_user

NOBODY = "~a-user-that-does-not-exist/x"


def test_a_home_folder_takes_the_place_of_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_user("~") == Path("/home/me")
    assert expand_user(Path("~/x")) == Path("/home/me/x")
    assert expand_user("x/~") == Path("x/~")


def test_a_user_without_a_home_folder_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert expand_user("~/x") == Path("~/x")


def test_a_user_who_does_not_exist_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_home(NOBODY) == tmp_path / NOBODY
    tables = {"a": {"source": NOBODY}, "b": {"source": "/b"}}
    assert configured_roots({"marketplaces": tables}, tmp_path) == {"b": Path("/b")}
