"""The command line: one file per verb. Torch is imported inside verbs, so that `regard --help` is instant."""
