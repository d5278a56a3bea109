"""Options of tasks, models and verbs: dataclasses whose fields a command line types.  No torch here."""
