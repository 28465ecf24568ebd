"""Tests of app_server/turns/tools.py."""
