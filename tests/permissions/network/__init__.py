"""Which hosts commands may reach: pure functions."""
