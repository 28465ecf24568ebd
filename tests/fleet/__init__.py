"""Tests of app_server/fleet."""
