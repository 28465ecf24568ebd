"""config: the JSON Schema of config.toml, beside the check that a server makes of the same file."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

from app_server.config.json_schema import FORMS, config_schema
from app_server.config.key_check import unknown_keys
from app_server.config.known_keys import KNOWN, LISTS_OF_TABLES
from app_server.config.values import Config, Document, merge_at
from app_server.handlers.server.config_check import wrong_values

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema_rs.Draft7Validator(dict(config_schema()))

VALUES: tuple[Any, ...] = (
    True, "x", "auto", 5, 500, 2**20, -1, 1.5, [], ["x"], [1], {}, {"x": "y"}, {"x": 1},
    {"x": True}, [{}], "USD", "read-only",
)  # fmt: skip
"""Of each type, and words that several settings have."""

WITH: Mapping[str, Document] = {
    "mcp_servers.*": {"command": "x"},
    "model_prices.*": {"currency": "USD", "in": 1, "out": 1},
    "notifications": {"events": ["turnCompleted"], "command": ["/bin/true"]},
    "mcp_servers.*.env_vars": {"name": "x"},
}
"""Keys that a table needs."""

OVER_HTTP = re.compile(
    r"mcp_servers\.\*\.(auth|bearer_token_env_var|env_http_headers|http_headers|"
    r"http_headers_helper|oauth\..*|oauth_resource|scopes|url)|mcp_oauth_.*"
)
"""Settings that are read where a server is behind a URL."""

FURTHER_RULES = {
    "budget.day.cost",
    "budget.folders.*.cost",
    "budget.folders.*.currency",
    "budget.folders.*.tokens",
    "budget.home.cost",
    "default_permissions",
    "mcp_oauth_callback_port",
    "mcp_servers.*.idle_seconds",
    "mcp_servers.*.oauth.callback_port",
    "mcp_servers.*.oauth.client_secret_env_var",
    "model_prices.*.cached",
    "model_prices.*.in",
    "model_prices.*.out",
    "node_address",
    "notification_link",
    "notifications.command",
    "notifications.cwd",
    "notifications.desktop",
    "notifications.events",
    "notifications.secret_file",
    "notifications.url",
    "permissions.*.extends",
    "sandbox_hidden_paths",
    "store",
}
"""Settings of which some values have the type that the schema demands, and are refused."""


def with_value(path: str, value: object) -> Document:
    """Return settings with a value at a path of KNOWN, and what it needs beside it."""
    document: Document = {}
    if OVER_HTTP.fullmatch(path):
        merge_at(document, ("mcp_servers", "x"), {"url": "http://127.0.0.1:1"})
    parts = path.split(".")
    if path == "notifications.secret_file":
        document["notifications"] = [{"events": ["turnCompleted"], "url": "https://x.example/"}]
    for at in range(1, 1 if document.get("notifications") else len(parts)):
        above = ".".join(parts[:at])
        needed = dict(WITH.get(above, {}))
        if not OVER_HTTP.fullmatch(path):
            place(document, parts[:at], needed)
    place(document, parts, value)
    return document


def place(document: Document, parts: list[str], value: object) -> None:
    """Put a value at a path; names of the user's are `/x`, and tables of lists stand alone."""
    inner: Any = document
    for at, part in enumerate(parts[:-1], start=1):
        name = "/x" if parts[0] == "budget" and part == "*" else "x" if part == "*" else part
        is_list = ".".join(parts[:at]) in LISTS_OF_TABLES
        inner = inner.setdefault(name, [{}] if is_list else {})
        inner = inner[0] if is_list else inner
    last = "x" if parts[-1] == "*" else parts[-1]
    if ".".join(parts) in LISTS_OF_TABLES:
        inner[last] = [value]
    elif isinstance(value, dict) and isinstance(inner.get(last), dict):
        inner[last] |= value
    else:
        inner[last] = value


def refusals(document: Document) -> list[str]:
    """Return what a server with --strict-config says of settings."""
    unknown = [one.detail for one in unknown_keys(document)]
    return unknown + [str(wrong.error) for wrong in wrong_values(Config(document))]


def test_each_setting_has_the_shape_that_its_reader_takes() -> None:
    further = set()
    for path, form in KNOWN.items():
        words = FORMS[form].get("items", {}).get("enum", ()) if isinstance(form, str) else form
        listed = [[word] for word in words] if isinstance(form, str) else words
        for value in (*VALUES, *listed):
            document = with_value(path, value)
            refused, fits = refusals(document), SCHEMA.is_valid(document)
            assert fits or refused, (path, value, list(SCHEMA.iter_errors(document)))
            if fits and refused:
                assert "invalid type" not in refused[0], (path, value)
                assert "unknown variant" not in refused[0], (path, value)
                further.add(path)
    assert further == FURTHER_RULES


def test_the_words_of_a_setting_are_those_that_its_reader_names() -> None:
    named, compared = {}, {}
    for path, form in KNOWN.items():
        if isinstance(form, tuple) and isinstance(form[0], str):
            (text, *_) = refusals(with_value(path, "no such word"))
            _, _, expected = text.partition("`, expected ")
            if expected:
                named[path] = set(re.findall("`([^`]+)`", expected.partition("\n")[0]))
                compared[path] = set(form)
    assert named == compared
    assert len(named) > 20


def corpus() -> Iterator[tuple[str, Document]]:
    """Yield the settings in texts of the tests and of the documentation, with their place."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield page.name, tomllib.loads(block)
    for file in sorted((ROOT / "tests").rglob("*.py")):
        text = file.read_text()
        if "config" not in text or "\n[" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                document = settings_in(node.value)
                if document:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", document


def settings_in(text: str) -> Document:
    """Parse a text that may be settings, else return none."""
    if "=" not in text:
        return {}
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def test_settings_of_the_tests_and_the_documentation_fit_when_the_server_takes_them() -> None:
    count = 0
    for where, document in corpus():
        refused, fits = refusals(document), SCHEMA.is_valid(document)
        assert fits or refused, (where, list(SCHEMA.iter_errors(document)))
        if fits and refused:
            assert "invalid type" not in refused[0], where
            assert "unknown variant" not in refused[0], where
            assert "unknown configuration field" not in refused[0], where
        count += 1
    assert count > 100
