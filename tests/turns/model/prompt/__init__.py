"""Tests of app_server/turns/model/prompt."""
