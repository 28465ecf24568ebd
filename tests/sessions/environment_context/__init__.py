"""Tests of app_server/sessions/environment_context.py."""
