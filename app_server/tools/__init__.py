"""The tools that a turn offers its model, a module each, and the table of them.

A tool declares itself for a model, reads its arguments, asks for the permission that it needs,
runs, and gives items to clients and an output to the model. Does not know: sessions, connections.
"""
