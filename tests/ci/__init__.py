"""Tests of the scripts in .ci, and of the layout of the tests."""
