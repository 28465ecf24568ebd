"""Tests of app_server/sessions/input.py."""
