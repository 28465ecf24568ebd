"""The setting `store`: what is taken, where from, and that its password is shown nowhere."""

from collections.abc import Mapping
from typing import Any

import pytest

from app_server.config.store_url import (
    ESCAPES,
    HIDDEN_PASSWORD,
    TODO,
    StoreUrl,
    chosen_store,
    may_name_a_store,
    read_store,
)
from app_server.config.values import Config, ConfigError

PLANTED = "s3cr3t"
PLAIN = "postgresql://u@db.example:5433/threads?sslmode=require"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (PLAIN, PLAIN),
        ("postgres:///threads?host=/run/postgresql", None),
        ("postgresql://", None),
        ("postgresql://one,two:5433/threads?target_session_attrs=read-write", None),
        (f"postgresql://u:{PLANTED}@db/threads", "postgresql://u@db/threads"),
        (f"postgresql://u:a:{PLANTED}%40#@db/threads", "postgresql://u@db/threads"),
        (f"postgresql://:{PLANTED}@db/threads", "postgresql://@db/threads"),
        (f"postgresql:///t?password={PLANTED}", "postgresql:///t"),
        (f"postgresql:///t?pass%77ord={PLANTED}&user=u", "postgresql:///t?user=u"),
        (f"postgresql:///t?user=u&sslpassword={PLANTED}", "postgresql:///t?user=u"),
    ],
)
def test_a_url_is_kept_whole_and_shown_without_its_password(url: str, shown: str | None) -> None:
    found = StoreUrl.parse(url)
    assert found.url == url
    assert str(found) == (url if shown is None else shown)
    assert found.has_password == (PLANTED in url)
    assert PLANTED not in f"{found} {found!r}"


REFUSED = {
    "": "this is no URL",
    "threads": "this is no URL",
    f"host=db password={PLANTED}": "this is no URL",
    f"postgresql:u:{PLANTED}@db": "this is no URL",
    f"postgresql://u:{PLANTED} 2@db": "this is no URL",
    f"postgresql://u:{PLANTED}@db\n": "this is no URL",
    f"mysql://u:{PLANTED}@db": "`mysql` is no scheme of a store",
    f"sqlite:///{PLANTED}": "`sqlite` is no scheme of a store",
    f"postgresql://{'x' * 2036}": "a URL has at most 2048 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_url_of_a_store_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="; write ") as caught:
        StoreUrl.parse(text)
    assert str(caught.value) == f"{REFUSED[text]}; {TODO}"


@pytest.mark.parametrize(
    "end",
    [
        f"u:{PLANTED}@@db/threads",
        f"u:/{PLANTED}@db/threads",
        f"u:?{PLANTED}@db/threads",
        f"u:%zz{PLANTED}@db/threads",
        f"u:%00{PLANTED}@db/threads",
        f"db/threads?password={PLANTED}@x",
        f"db/threads?password={PLANTED}=",
        f"db/threads?{PLANTED}",
    ],
)
def test_a_password_that_the_library_would_repeat_is_refused(end: str) -> None:
    with pytest.raises(ValueError, match="cannot be read") as caught:
        StoreUrl.parse(f"postgresql://{end}")
    assert str(caught.value) == f"this URL cannot be read: {ESCAPES}"


def test_a_password_of_the_environment_is_taken_out_of_it() -> None:
    environ = {"PGPASSWORD": "a b@c", "PATH": "/bin"}
    found = StoreUrl.parse(PLAIN).taking_password(environ)
    assert (found.url, str(found)) == (f"{PLAIN}&password=a%20b%40c", PLAIN)
    assert environ == {"PATH": "/bin"}
    assert StoreUrl.parse("postgres://").taking_password({"PGPASSWORD": "x"}).url == (
        "postgres://?password=x"
    )
    environ = {"PGPASSWORD": "of another database"}
    own = StoreUrl.parse("postgresql://u:p@h/d")
    assert own.taking_password(environ) == own
    assert environ == {"PGPASSWORD": "of another database"}


@pytest.mark.parametrize(
    ("option", "overrides", "environ", "found"),
    [
        (None, {}, {}, None),
        (None, {}, {"APP_SERVER_STORE": ""}, None),
        (None, {}, {"APP_SERVER_STORE": "postgres://v"}, "postgres://v"),
        (None, {"store": "postgres://c"}, {"APP_SERVER_STORE": "postgres://v"}, "postgres://c"),
        ("postgres://o", {"store": "postgres://c"}, {"APP_SERVER_STORE": "x"}, "postgres://o"),
        (None, {}, {"APP_SERVER_STORE": "postgres://u:p@v"}, "postgres://u:p@v"),
        # What config.toml has is read with its place.
        (None, {"store": 5}, {}, None),
    ],
)
def test_the_option_wins_over_the_command_line_and_the_variable(
    option: str | None, overrides: Mapping[str, Any], environ: Mapping[str, str], found: str | None
) -> None:
    chosen = chosen_store(option, overrides, environ)
    assert (None if chosen is None else chosen.url) == found


@pytest.mark.parametrize(
    ("option", "overrides", "environ", "text"),
    [
        (f"postgresql://u:{PLANTED}@h/d", {}, {}, f"--store: {HIDDEN_PASSWORD}"),
        (None, {"store": f"postgres://h?password={PLANTED}"}, {}, f"-c store: {HIDDEN_PASSWORD}"),
        (PLANTED, {}, {}, f"--store: this is no URL; {TODO}"),
        ("", {}, {}, f"--store: this is no URL; {TODO}"),
        (None, {"store": PLANTED}, {}, f"-c store: this is no URL; {TODO}"),
        (None, {}, {"APP_SERVER_STORE": PLANTED}, f"APP_SERVER_STORE: this is no URL; {TODO}"),
    ],
)
def test_a_fault_is_named_with_where_it_came_from(
    option: str | None, overrides: Mapping[str, Any], environ: Mapping[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen_store(option, overrides, environ)
    assert str(caught.value) == text


def test_the_key_of_the_file_is_read_and_its_faults_have_no_value() -> None:
    assert read_store(Config({}).view()) is None
    found = read_store(Config({"store": f"postgresql://u:{PLANTED}@h/d"}).view())
    assert found is not None
    assert found.url == f"postgresql://u:{PLANTED}@h/d"
    for value in (5, [PLANTED], {"url": PLANTED}, PLANTED):
        with pytest.raises(ConfigError) as caught:
            read_store(Config({"store": value}).view())
        assert (str(caught.value), caught.value.path) == (
            f"this is no URL; {TODO}\nin `store`\n",
            ("store",),
        )


def test_a_file_that_cannot_be_read_may_name_a_store() -> None:
    for content in (b"=\nstore = 1", b"\xff\n  'store'= 1", b'"store" ='):
        assert may_name_a_store(content)
    for content in (b"", b"[", b"# store = 1", b"restore = 1", b"store_x = 1"):
        assert not may_name_a_store(content)
