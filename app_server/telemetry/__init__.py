"""Traces and metrics of what the server does, for a collector, where config.toml names one.

Knows: spans and their kinds. Does not know: requests, turns, models, MCP servers. Only
`exporting.py` imports OpenTelemetry, and is imported where telemetry is configured.
"""
