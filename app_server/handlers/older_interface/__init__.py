"""Methods from before threads and turns that are still asked for."""
