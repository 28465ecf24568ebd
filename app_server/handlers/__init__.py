"""One handler a method: parameters in, response out, no state of their own.

Each class takes the `Services` of the server, and has a handler for each of its methods, called as
that: `thread_name_set` answers `thread/name/set`. `table.py` says which class serves which methods.
Domain failures become wire errors here and nowhere else.
"""
