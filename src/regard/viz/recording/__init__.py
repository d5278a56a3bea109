"""A recording in the terminal, as figures, as a page, and behind a tile server."""
