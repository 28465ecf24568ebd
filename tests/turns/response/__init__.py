"""Tests of app_server/turns/response.py."""
