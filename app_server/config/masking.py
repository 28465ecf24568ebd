"""Which settings are secrets, and the mark that stands in their place where settings are shown.

A secret is known by its key, and in a URL by its place: user and password, query and fragment.
Source: docs/config.md, "What clients are shown".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from app_server.config.positions import KeyPath
from app_server.config.values import ConfigError, Document

MARK = "[redacted]"

SECRETS = (
    "mcp_servers.*.bearer_token",
    "mcp_servers.*.env",
    "mcp_servers.*.http_headers",
    "mcp_servers.*.http_headers_helper",
    "model_providers.*.auth.args",
    "model_providers.*.experimental_bearer_token",
    "model_providers.*.gateway_oauth",
    "model_providers.*.http_headers",
    "model_providers.*.query_params",
    "notifications.url",
    "otel.exporter.*.headers",
    "otel.metrics_exporter.*.headers",
    "otel.trace_exporter.*.headers",
    "shell_environment_policy.set",
)
"""Keys whose values are secrets, all that stands below them; `*` is any name."""

WORDS = ("none", "statsig")
"""Words that may replace a table with secrets: exporters without settings."""

_Tree: TypeAlias = Mapping[str, "_Tree"]

_USER = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_QUERY = re.compile(r"(://[^?#]*[?#]).+")


def masked(document: Document) -> Document:
    """Copy a document with MARK in the place of each secret; names of keys stay.

    In texts without a blank that hold a URL, MARK also stands for its query or fragment, and in all
    texts for the user and password of a URL.
    """
    shown: Document = _masked(document, _SECRETS)
    return shown


def refuse_marks(value: Any, path: KeyPath = ()) -> None:
    """Refuse settings with a MARK, which a client read and sends back for the secret.

    Raises:
        ConfigError: names the first key that has one; `value` stands at `path`.
    """
    for marked in _marks(value, path):
        raise ConfigError(
            f"`{'.'.join(marked)}` has `{MARK}`, which stands for a secret that is not shown: "
            "send the secret itself, or leave the key out",
            path=marked,
        )


def _masked(value: Any, tree: _Tree | None) -> Any:
    """Mask a value; `tree` has the ways to secrets below it, None where there are none."""
    if tree is not None and not tree:
        return _all_masked(value)
    match value:
        case dict():
            return {key: _masked(inner, _below(tree, key)) for key, inner in value.items()}
        case list():
            return [_masked(inner, tree) for inner in value]
        case str() if tree is not None and value not in WORDS:
            # In the place of a table.
            return MARK
        case str() if "://" in value:
            return _without_credentials(value)
    return value


def _all_masked(value: Any) -> Any:
    match value:
        case dict():
            return {key: _all_masked(inner) for key, inner in value.items()}
        case list():
            return [_all_masked(inner) for inner in value]
    return MARK


def _without_credentials(text: str) -> str:
    text = _USER.sub(MARK, text)
    return text if len(text.split()) > 1 else _QUERY.sub(rf"\1{MARK}", text)


def _below(tree: _Tree | None, key: str) -> _Tree | None:
    return None if tree is None else tree.get(key, tree.get("*"))


def _marks(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _marks(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _marks(inner, (*path, str(index)))
        case str() if value == MARK or f"//{MARK}@" in value:
            yield path
        case str() if "://" in value and value.endswith((f"?{MARK}", f"#{MARK}")):
            yield path


def _tree(paths: tuple[str, ...]) -> _Tree:
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for name in path.split("."):
            inner = inner.setdefault(name, {})
    return tree


_SECRETS = _tree(SECRETS)
