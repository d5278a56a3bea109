"""Labelled and captioned images from files."""
