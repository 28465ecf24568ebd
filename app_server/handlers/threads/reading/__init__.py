"""thread/*: which threads there are, and what is in them. Nothing is changed."""
