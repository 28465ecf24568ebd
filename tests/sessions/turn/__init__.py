"""Tests of app_server/sessions/turn."""
