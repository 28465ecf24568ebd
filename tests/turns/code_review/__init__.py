"""Tests of app_server/turns/code_review."""
