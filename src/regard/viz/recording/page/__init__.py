"""The page of a recording: one HTML file."""
