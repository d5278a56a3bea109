"""Exported models against regard: the same tokens and scores, by the libraries that read the files."""
