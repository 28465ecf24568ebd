"""Tests of app_server/sessions/loaded."""
