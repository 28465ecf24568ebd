"""Tests of app_server/sessions/surroundings."""
