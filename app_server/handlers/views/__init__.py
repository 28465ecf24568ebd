"""From stored and loaded values to the types of the wire. No method is served here."""
