"""Counters and spans of the server: for server/diagnostics, and for a collector if there is one.

Knows: counters, spans and their kinds. Does not know: requests, turns, models, MCP servers. Only
`exporting.py` imports OpenTelemetry, and is imported where telemetry is configured.
"""
