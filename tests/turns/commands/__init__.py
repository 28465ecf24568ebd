"""Tests of app_server/turns/commands.py."""
