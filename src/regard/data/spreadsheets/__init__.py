"""Spreadsheets: their rows, and the columns of labelled texts."""
