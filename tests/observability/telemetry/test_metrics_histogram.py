"""Times in bounded histograms: quantiles that are near enough, whatever was measured."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from app_server.observability.telemetry.metrics import BUCKETS, FIRST_US, Histogram, upper_us

SHARES = (0.0, 0.5, 0.9, 0.99, 1.0)


def of(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.add(each)
    return histogram


def test_nothing_measured_is_zero() -> None:
    histogram = Histogram()
    assert [histogram.quantile_us(share) for share in SHARES] == [0] * len(SHARES)
    assert (histogram.count, histogram.max_us, list(histogram.buckets())) == (0, 0.0, [])


def test_times_are_counted_in_their_buckets() -> None:
    histogram = of(0.0, 16e-6, 17e-6, 31e-6, 1e9)
    assert list(histogram.buckets()) == [(16, 2), (20, 1), (32, 1), (upper_us(BUCKETS - 1), 1)]
    assert histogram.quantile_us(0.5) == 20
    assert histogram.quantile_us(1.0) == upper_us(BUCKETS - 1)


@given(st.lists(st.floats(min_value=0.0, max_value=2000.0), min_size=1, max_size=200))
def test_a_quantile_is_at_most_a_bucket_too_high(times: list[float]) -> None:
    histogram = of(*times)
    assert sum(count for _, count in histogram.buckets()) == len(times)
    ordered = sorted(times)
    for share in SHARES[1:]:
        exact_us = ordered[ceil(share * len(times)) - 1] * 1e6
        shown_us = histogram.quantile_us(share)
        assert exact_us <= shown_us + 1
        assert shown_us <= max(exact_us * 2**0.25, FIRST_US) + 1
