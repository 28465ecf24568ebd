"""Tests of app_server/permissions/confinement."""
