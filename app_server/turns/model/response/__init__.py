"""One response of a model: from bytes to events, within bounds, and from events to items."""
