"""The page of a service: template, style and scripts."""
