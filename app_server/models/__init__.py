"""Models: the catalogue, the prompt, the HTTP client, the events of a response and their bounds.

Knows: the Responses API, Chat Completions, accounts. Does not know: turns, items, tools.
"""
