"""Chat Completions: the API that servers for models on one's own machine speak.

Knows: what a body of the Responses API says, and how Chat Completions says the same. Does not know:
HTTP, tools, threads.
"""
