"""Reviews of code: a turn whose model sees a history of its own, and what it found.

Does not know: sessions, connections. The automatic reviewer of actions is in `turns/review`.
"""
