"""Files that cannot be settings, whatever is in them: each is refused with a sentence."""

from pathlib import Path

import pytest

from app_server.config.values import MAX_DEPTH, ConfigError, read_config


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a = " + "[" * 10_000, "more than 80 tables and arrays are in each other"),
        (
            f"a = {'[' * MAX_DEPTH}{']' * MAX_DEPTH}",
            "more than 80 tables and arrays are in each other",
        ),
        ("a." * 2_000 + "b = 1", "more than 80 tables and arrays are in each other"),
        ("a = " + "1" * 5_000, "a number has too many digits"),
    ],
    ids=["arrays", "one too many", "tables", "digits"],
)
def test_what_is_too_deep_or_too_long_names_the_file(tmp_path: Path, text: str, rule: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert str(caught.value) == f"{file}: {rule}"


def test_what_is_as_deep_as_allowed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"a = {'[' * (MAX_DEPTH - 1)}{']' * (MAX_DEPTH - 1)}")
    assert list(read_config(file).document) == ["a"]
