"""Commands on this machine: started by a spawner, read within bounds, ended with all children."""
