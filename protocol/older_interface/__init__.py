"""Messages from before threads had their present form, for clients that still use them."""
