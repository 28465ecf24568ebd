"""Who is asked before something is done."""
