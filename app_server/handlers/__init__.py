"""One handler a method: parameters in, response out, no state of their own.

Each class takes the `Services` of the server and has `routes`, from method to handler; `table.py`
says which class serves which methods. Domain failures become wire errors here and nowhere else.
"""
