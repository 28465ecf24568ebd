"""The response of a model to a turn: from events to items of the thread, with plans and patches."""
