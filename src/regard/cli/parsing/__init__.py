"""Options from the command line and from TOML files."""
