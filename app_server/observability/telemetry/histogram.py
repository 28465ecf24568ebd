"""How long things took: a bounded count of times, from which quantiles are read.

A time falls into one of 108 buckets, each 19 % (2 to the power of 1/4) wider than the one before,
from 16 µs to 36 min. So a quantile is at most 19 % too high, whatever was measured, and a histogram
takes less than 1 KiB, however much was measured.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from math import ceil

STEPS_PER_DOUBLING = 4
FIRST_US = 16.0
"""The upper bound of the first bucket."""
BUCKETS = 27 * STEPS_PER_DOUBLING + 1
"""The last one also has whatever takes longer."""


_BOUNDS_US = [FIRST_US * 2 ** (bucket / STEPS_PER_DOUBLING) for bucket in range(BUCKETS - 1)]
"""Of all buckets but the last one."""


def upper_us(bucket: int) -> int:
    """Return the upper bound of a bucket, in microseconds."""
    return ceil(FIRST_US * 2 ** (bucket / STEPS_PER_DOUBLING))


class Histogram:
    """Counts of times; one event loop adds to it and reads it."""

    def __init__(self) -> None:
        self.count = 0
        self.max_us = 0.0
        self._counts = array("Q", bytes(8 * BUCKETS))

    def add(self, seconds: float) -> None:
        """Count one time."""
        us = seconds * 1e6
        self.count += 1
        if us > self.max_us:  # noqa: PLR1730 (twice as fast as max, and done for every request)
            self.max_us = us
        self._counts[bisect_left(_BOUNDS_US, us)] += 1

    def quantile_us(self, share: float) -> int:
        """Return a time that `share` (0 to 1) of all did not exceed; 0 where nothing was counted.

        It is at most 19 % above the least such time, and never above the longest one.
        """
        wanted = ceil(share * self.count)
        for up_to_us, count in self.buckets():
            wanted -= count
            if wanted <= 0:
                return min(up_to_us, ceil(self.max_us))
        return 0

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Give the upper bound in microseconds and the count of each bucket that has any."""
        for bucket, count in enumerate(self._counts):
            if count:
                yield upper_us(bucket), count
