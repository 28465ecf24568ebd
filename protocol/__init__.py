"""The wire: envelopes, types and the table of methods.

Knows pydantic and nothing else of this project or of the network, so that client tools can import
it alone. What a schema cannot say about the wire is in docs/wire.md.
"""
