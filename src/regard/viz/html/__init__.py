"""One-file HTML pages with a content security policy."""
