"""Rows of spreadsheets and of JSON lines, and their columns."""
