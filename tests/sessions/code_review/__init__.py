"""Tests of app_server/sessions/code_review.py."""
