"""Tests of app_server/sessions/environment_messages.py."""
