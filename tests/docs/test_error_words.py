"""The words of errors: those that the code says, and those that docs/wire.md lists."""

import ast
import re
from collections.abc import Iterator

from tests.support.paths import ROOT

WORD_AT = {"RpcError": 2, "internal_error": 1, "invalid_params": 1, "invalid_request": 1}
"""Which argument of these calls is the word."""

SOURCES = [
    path.read_text()
    for folder in ("app_server", "protocol")
    for path in (ROOT / folder).rglob("*.py")
]


def _words(source: str) -> Iterator[str]:
    if not any(f"{name}(" in source for name in WORD_AT):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = node.args[WORD_AT.get(node.func.id, len(node.args)) :][:1]
            yield from (
                one.value
                for one in given
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


def test_every_word_of_an_error_is_documented() -> None:
    pages = [
        page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name != "changelog.md"
    ]
    documented = {word for page in pages for word in re.findall(r"`(\w+)`", page)}
    said = {word for source in SOURCES for word in _words(source)}
    assert len(said) > 80
    assert said - documented == set()


def test_every_listed_word_is_one_of_the_code() -> None:
    page = (ROOT / "docs" / "wire.md").read_text()
    _, _, section = page.partition("The others are:")
    listed = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    assert len(listed) > 80
    assert {word for word in listed if not any(f'"{word}"' in text for text in SOURCES)} == set()
