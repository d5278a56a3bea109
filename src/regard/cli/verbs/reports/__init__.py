"""Verbs that look at files and runs, and train nothing."""
