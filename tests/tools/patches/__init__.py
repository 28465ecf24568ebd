"""Tests of app_server/tools/apply_patch.py."""
