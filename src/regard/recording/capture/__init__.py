"""What is captured while a model runs, and how a map is certified."""
