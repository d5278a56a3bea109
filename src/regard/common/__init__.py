"""Files, suggestions and other small helpers that every package may use."""
