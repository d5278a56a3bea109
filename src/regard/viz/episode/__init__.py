"""Episodes of agents: what was seen and done, and the attended past steps."""
