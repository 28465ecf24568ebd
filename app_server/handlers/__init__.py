"""One function a method: parameters in, response out, no state of its own.

`serves` (serving.py) binds a function to its method. The module of a function has the name of the
module of its types: protocol/turns/requests.py and handlers/turns/requests.py. What a server has is
`context.services`. Domain failures become wire errors here and nowhere else.
"""
