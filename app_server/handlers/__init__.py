"""One handler a method: parameters in, response out, no state of their own.

Each module has a class with the ports it needs and a table `routes` from method to handler. Domain
failures become wire errors here and nowhere else.
"""
