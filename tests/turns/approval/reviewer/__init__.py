"""Tests of app_server/turns/approval/reviewer.py."""
