"""The task agent."""
