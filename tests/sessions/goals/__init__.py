"""Tests of app_server/sessions/goals."""
