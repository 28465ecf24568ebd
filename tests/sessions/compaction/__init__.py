"""Tests of compactions."""
