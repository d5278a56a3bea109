"""Mechanisms that are uses of the equation, one file each."""
