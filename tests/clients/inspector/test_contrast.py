"""The contrast of the page's colours, computed from its variables.

Source: WCAG 2.2, 1.4.3 (texts: at least 4.5), 1.4.11 (edges of controls and focus: at least 3).
"""

import re

import pytest

from app_server.clients.inspector.run import PAGE

COLOUR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
VALUES = {
    name: {"light": light, "dark": dark}
    for name, light, dark in COLOUR.findall((PAGE / "style" / "tokens.css").read_text())
}
SURFACES = (
    "surface",
    "surface-side",
    "surface-raised",
    "surface-selected",
    "surface-added",
    "surface-removed",
)
TEXTS = (
    "text",
    "text-muted",
    "text-faint",
    "accent",
    "good",
    "attention",
    "bad",
    "magenta",
    "cyan",
)


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, from 0 to 1."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def too_low(pairs: list[tuple[str, str]], least: float) -> list[str]:
    """Name the pairs of variables whose contrast is too low, in either scheme."""
    return [
        f"{front} on {back} in {scheme}: {ratio:.2f}"
        for front, back in pairs
        for scheme in ("light", "dark")
        if (ratio := contrast(VALUES[front][scheme], VALUES[back][scheme])) < least
    ]


def test_every_text_can_be_read_on_every_surface() -> None:
    assert too_low([(text, surface) for text in TEXTS for surface in SURFACES], 4.5) == []


def test_texts_on_colours_can_be_read() -> None:
    assert too_low([("button-text", "button"), ("surface", "attention")], 4.5) == []


def test_edges_and_focus_can_be_seen() -> None:
    edges = [("line-strong", "surface"), ("line-strong", "surface-side")]
    assert too_low([*edges, *(("focus", surface) for surface in SURFACES)], 3) == []


@pytest.mark.parametrize(
    ("one", "other", "ratio"), [("#000000", "#ffffff", 21.0), ("#777777", "#ffffff", 4.48)]
)
def test_the_ratio_is_that_of_the_standard(one: str, other: str, ratio: float) -> None:
    assert contrast(one, other) == pytest.approx(ratio, abs=0.01)
