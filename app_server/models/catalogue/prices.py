"""Prices of models, from the settings; there are none built in.

An amount of money is a whole number of 10⁻¹⁵ of its currency: what tokens cost is exact, and sums
never drift.
Source: docs/usage.md, "Prices".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from app_server.config.values import Config, ConfigError, ConfigView
from app_server.threads.usage import ModelName, Usage
from protocol.threads.thread import MoneyAmount

DECIMALS = 9
"""Of a price, and of an amount that somebody writes."""
AMOUNT_DECIMALS = 15
"""Of an amount: the price of one token is a millionth of a price."""
MAX_PRICE = 1_000_000
CURRENCY = re.compile(r"[A-Z]{3}")
_AMOUNT = re.compile(r"\d{1,12}(\.\d{1,9})?")

Money: TypeAlias = dict[str, int]
"""Amounts by currency."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model: whole units of 10⁻⁹ of its currency for a million tokens."""

    currency: str
    input: int
    cached: int
    output: int

    def cost(self, usage: Usage) -> int:
        """Return the amount that tokens cost."""
        fresh = usage.input_tokens - usage.cached_input_tokens
        return (
            fresh * self.input
            + usage.cached_input_tokens * self.cached
            + usage.output_tokens * self.output
        )

    def most(self, usage: Usage) -> int:
        """Return the most that tokens cost, however many of the input are cached."""
        dearer = max(self.input, self.cached)
        return usage.input_tokens * dearer + usage.output_tokens * self.output


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of models, by their names, or by `PROVIDER/NAME`, which comes first."""

    by_name: Mapping[str, Price]
    source: str | None
    """The file that has them."""

    def find(self, name: ModelName) -> Price | None:
        """Return the price of a model."""
        provider, model = name
        return self.by_name.get(f"{provider}/{model}") or self.by_name.get(model)


def read_prices(config: Config) -> Prices:
    """Read `[model_prices]`; an entry that cannot be used is left out."""
    prices = {name: price for name, price in _entries(config) if isinstance(price, Price)}
    in_profile = config.profile is not None and "model_prices" in config.profile.document
    file = config.profile if in_profile and config.profile is not None else config
    is_known = bool(prices) and file.source is not None
    return Prices(prices, str(file.source) if is_known else None)


def broken_prices(config: Config) -> Iterator[ConfigError]:
    """Return what is wrong with entries of `[model_prices]`."""
    for _, price in _entries(config):
        if isinstance(price, ConfigError):
            yield price


def parse_amount(text: str) -> int | None:
    """Read an amount of money, such as `2.50`; None: the text is none."""
    if not _AMOUNT.fullmatch(text):
        return None
    whole, _, rest = text.partition(".")
    return int(whole + rest.ljust(AMOUNT_DECIMALS, "0"))


def render_amount(amount: int) -> str:
    """Write an amount as a decimal number without an exponent."""
    whole, rest = divmod(amount, 10**AMOUNT_DECIMALS)
    return f"{whole}.{rest:0{AMOUNT_DECIMALS}}".rstrip("0").rstrip(".")


def shown_money(money: Money) -> list[MoneyAmount]:
    """Return amounts as the wire has them, in the order of their currencies."""
    return [
        MoneyAmount(currency=currency, amount=render_amount(amount))
        for currency, amount in sorted(money.items())
    ]


def _entries(config: Config) -> Iterator[tuple[str, Price | ConfigError]]:
    try:
        table = config.view().at("model_prices")
    except ConfigError as exc:
        yield "", exc
        return
    for name in table.table:
        try:
            yield name, _read_price(table.at(name))
        except ConfigError as exc:
            yield name, exc


def _read_price(entry: ConfigView) -> Price:
    currency = entry.string("currency")
    if currency is None or not CURRENCY.fullmatch(currency):
        rule = "`currency` must be three capital letters, such as `USD`"
        raise entry.error(rule, None if currency is None else "currency")
    given, cached, out = (_price(entry, key) for key in ("in", "cached", "out"))
    if given is None or out is None:
        raise entry.error("`in` and `out` are needed: the prices of a million tokens")
    return Price(currency, given, given if cached is None else cached, out)


def _price(entry: ConfigView, key: str) -> int | None:
    value = entry.table.get(key)
    if value is None:
        return None
    rule = (
        f"a price must be a number, or the text of one, from 0 to {MAX_PRICE}, with at most "
        f"{DECIMALS} decimals"
    )
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise entry.error(rule, key)
    try:
        # The shortest text of a float is what its author wrote.
        price = Decimal(str(value))
    except InvalidOperation:
        raise entry.error(rule, key) from None
    if not price.is_finite() or not 0 <= price <= MAX_PRICE:
        raise entry.error(rule, key)
    units = price.scaleb(DECIMALS)
    if units != units.to_integral_value():
        raise entry.error(rule, key)
    return int(units)
