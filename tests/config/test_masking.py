"""Secrets of a configuration, and the mark in their place."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from app_server.config.key_check import known_part
from app_server.config.known_keys import KNOWN, OF_OTHER_PROGRAMS, WITHOUT_EFFECT
from app_server.config.masking import MARK, SECRETS, masked, refuse_marks
from app_server.config.values import ConfigError, has

PLANTED = "s3cr3t"

NO_SECRETS = {
    "budget.day.tokens",
    "budget.folders.*.tokens",
    "budget.home.tokens",
    "cli_auth_credentials_store",
    "mcp_enterprise_managed_auth",
    "mcp_oauth_credentials_store",
    "mcp_servers.*.auth",
    "mcp_servers.*.bearer_token_env_var",
    "mcp_servers.*.oauth.client_secret_env_var",
    "mcp_servers.*.env_http_headers",
    "mcp_servers.*.tools.*.output_token_limit",
    "model_auto_compact_token_limit",
    "model_auto_compact_token_limit_scope",
    "model_providers.*.credential_file",
    "model_providers.*.env_http_headers",
    "node_secret_file",
    "notifications.secret_file",
    "model_providers.*.env_key",
    "model_providers.*.env_key_instructions",
    "model_providers.*.requires_openai_auth",
    "tool_output_token_limit",
}
"""Keys that sound like a secret: names of variables, files and stores, numbers."""

SOUNDS = re.compile(r"auth$|token|secret|password|credential|headers|params|key|\.env$|\.set$")


def below(path: str, value: Any) -> dict[str, Any]:
    """Make a document with a value at a path; a `*` is the name `n`."""
    document: Any = value
    for name in reversed(path.split(".")):
        document = {"n" if name == "*" else name: document}
    return dict(document)


def places(path: str) -> Iterator[str]:
    """Yield a path and all above it but the first key."""
    names = path.split(".")
    for end in range(2, len(names) + 1):
        yield ".".join(names[:end])


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize(
    "value", [PLANTED, {"a": PLANTED}, [PLANTED], {"a": [{"b": PLANTED}]}, 12345]
)
def test_a_secret_is_masked_whatever_its_form(path: str, value: Any) -> None:
    shown = str(masked(below(path, value)))
    assert MARK in shown
    assert PLANTED not in shown
    assert "12345" not in shown


@pytest.mark.parametrize("place", sorted({place for path in SECRETS for place in places(path)}))
def test_a_text_in_the_place_of_a_table_with_secrets_is_masked(place: str) -> None:
    assert masked(below(place, PLANTED)) == below(place, MARK)
    assert masked(below(place, [PLANTED])) == below(place, [MARK])


def test_a_word_for_an_exporter_is_shown() -> None:
    document = {"otel": {"exporter": "none", "trace_exporter": "statsig", "environment": "e"}}
    assert masked(document) == document


def test_each_key_that_sounds_like_a_secret_was_decided() -> None:
    known = (*KNOWN, *WITHOUT_EFFECT, *OF_OTHER_PROGRAMS)
    found = {path for path in known if SOUNDS.search(path) and not path.startswith("features.")}
    assert {path for path in found if MARK not in str(masked(below(path, "x")))} == NO_SECRETS


def test_all_else_is_shown_as_it_is() -> None:
    document = {
        "model": "m",
        "mcp_servers": {
            "s": {
                "command": "c",
                "args": ["-y", "x"],
                "env_vars": ["HOME"],
                "enabled": False,
                "startup_timeout_sec": 2.5,
                "tools": {"t": {"approval_mode": "approve"}},
            }
        },
        "model_providers": {"p": {"env_key": "KEY", "env_http_headers": {"X": "VARIABLE"}}},
        "shell_environment_policy": {"inherit": "core", "exclude": ["A*"]},
        "projects": {"/a": {"trust_level": "trusted"}},
    }
    assert masked(document) == document


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://h/p", "https://h/p"),
        ("https://u:p@h/p", f"https://{MARK}@h/p"),
        ("https://u@h", f"https://{MARK}@h"),
        ("https://u:p@ss@h/p@q", f"https://{MARK}@h/p@q"),
        ("http://h/p?k=v#f", f"http://h/p?{MARK}"),
        ("http://h/p#f", f"http://h/p#{MARK}"),
        ("--url=http://u:p@h?k=v", f"--url=http://{MARK}@h?{MARK}"),
        ("postgres://u:p@h/db", f"postgres://{MARK}@h/db"),
        ("see http://u:p@h and http://h?k=v", f"see http://{MARK}@h and http://h?k=v"),
        ("^https?://.*$", "^https?://.*$"),
        ("user@host:path?x#y", "user@host:path?x#y"),
    ],
)
def test_of_a_url_user_password_query_and_fragment_are_masked(text: str, shown: str) -> None:
    assert masked({"a": {"b": [text]}}) == {"a": {"b": [shown]}}


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"mcp_servers": {"s": {"command": "c", "env": {"KEY": MARK}}}}, "mcp_servers.s.env.KEY"),
        (
            {"model_providers": {"p": {"auth": {"args": ["a", MARK]}}}},
            "model_providers.p.auth.args.1",
        ),
        ({"a": f"http://{MARK}@h"}, "a"),
        ({"a": f"http://h/p?{MARK}"}, "a"),
        ({"a": f"http://h#{MARK}"}, "a"),
    ],
)
def test_a_mark_is_refused_with_the_name_of_its_key(document: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_marks(document)
    assert str(caught.value) == (
        f"`{key}` has `{MARK}`, which stands for a secret that is not shown: send the secret "
        "itself, or leave the key out"
    )
    assert has(masked(document), caught.value.path[:1])


def test_a_text_that_speaks_of_the_mark_is_none() -> None:
    refuse_marks({"developer_instructions": f"Write {MARK} for each name. See http://h?x."})


def test_every_secret_that_was_masked_is_refused() -> None:
    for path in SECRETS:
        with pytest.raises(ConfigError):
            refuse_marks(masked(below(path, {"a": PLANTED})))


def test_only_known_keys_are_kept() -> None:
    server = {"command": "c", "bearer_tokn": PLANTED, "oauth": {"client_id": "i", "x": PLANTED}}
    skills = [{"path": "/s", "enabled": False, "x": PLANTED}]
    document = {
        "mcp_servers": {"s": server},
        "skills": {"config": skills},
        "desktop": {"any": {"thing": 1}},
        "nobody": {"knows": PLANTED},
    }
    assert known_part(document) == {
        "mcp_servers": {"s": {"command": "c", "oauth": {"client_id": "i"}}},
        "skills": {"config": [{"path": "/s", "enabled": False}]},
        "desktop": {"any": {"thing": 1}},
    }
