"""The task track: the state of a dialogue."""
