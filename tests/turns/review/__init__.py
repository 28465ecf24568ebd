"""Tests of app_server/turns/review."""
