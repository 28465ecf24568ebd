"""How many reviews a turn gets, and when denials end it. No I/O.

Source: docs/mcp.md, "Reviewer".
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial

MAX_REVIEWS = 100
"""Of one turn; what comes after them is denied without asking."""

MAX_DENIALS_IN_A_ROW = 3
MAX_RECENT_DENIALS = 10
RECENT_REVIEWS = 50


@dataclass(slots=True)
class TurnReviews:
    """The reviews of one turn."""

    turn_id: str
    in_a_row: int = 0
    """Denials since the last review that ended otherwise."""
    _begun: int = 0
    _stopped: bool = False
    _recent: deque[bool] = field(default_factory=partial(deque, maxlen=RECENT_REVIEWS))

    @property
    def recent_denials(self) -> int:
        """Denials among the last `RECENT_REVIEWS`."""
        return sum(self._recent)

    def begin(self) -> bool:
        """Count one more; False when the turn has had its share."""
        self._begun += 1
        return self._begun <= MAX_REVIEWS

    def end(self, *, denied: bool) -> bool:
        """Take a result; True, once, when the turn must not go on.

        A review that came to no verdict is not a denial: it says nothing of the model's intent.
        """
        self.in_a_row = self.in_a_row + 1 if denied else 0
        self._recent.append(denied)
        too_many = (
            self.in_a_row >= MAX_DENIALS_IN_A_ROW or self.recent_denials >= MAX_RECENT_DENIALS
        )
        if self._stopped or not denied or not too_many:
            return False
        self._stopped = True
        return True
