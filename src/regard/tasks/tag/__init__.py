"""The task tag: tags and spans of words in running text."""
