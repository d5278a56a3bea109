"""Dialogues in which every turn of the user has a state: slots and their values."""
