"""Environments of agents: games in numpy, many of them played at once."""
