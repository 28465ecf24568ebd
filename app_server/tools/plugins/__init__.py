"""Tools with which a model suggests a plugin that is not installed."""
