"""Places in an order that is never renumbered: strings that sort, with room between any two.

A rank is a fraction below 1 in base 36, without its point and without zeros at its end. Both ends
of an order have room for two billion ranks of six digits; each further one at one spot in between
costs about a fifth of a digit.
"""

import itertools

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
BASE = len(DIGITS)
ENDS = 6
"""Digits of ranks at the ends."""


def rank_between(low: str | None, high: str | None) -> str:
    """Make a rank above `low` and below `high`; None stands for the end of the order.

    Raises:
        ValueError: `low` is not below `high`.
    """
    if low is None and high is None:
        return DIGITS[BASE // 2]
    if high is None and (above := _floor(low or "", ENDS) + 1) < BASE**ENDS:
        return _render(above, ENDS)
    if low is None and high is not None and (below := _ceiling(high, ENDS) - 1) > 0:
        return _render(below, ENDS)
    if low is not None and high is not None and low >= high:
        raise ValueError(f"{low} is not below {high}")
    for places in itertools.count(1):
        bottom = _floor(low or "", places)
        top = BASE**places if high is None else _ceiling(high, places)
        if top - bottom > 1:
            return _render((bottom + top) // 2, places)
    raise AssertionError("fractions are dense")


def _floor(rank: str, places: int) -> int:
    return int(rank[:places].ljust(places, "0"), BASE)


def _ceiling(rank: str, places: int) -> int:
    return _floor(rank, places) + (len(rank) > places)


def _render(number: int, places: int) -> str:
    digits: list[str] = []
    for _ in range(places):
        number, digit = divmod(number, BASE)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)).rstrip("0")
