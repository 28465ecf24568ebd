"""A Python whose environment names a planted error imports that module with the error in it.

Python imports this module by its name at the start, as this folder is on its PYTHONPATH.
"""

from tests.planted.importing import begin

begin()
