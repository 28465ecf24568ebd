"""Texts for who types a command line: help, advice about wrong calls, completion in shells."""
