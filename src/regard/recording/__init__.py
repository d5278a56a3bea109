"""Tape: attention maps of any model as it runs, each with a certificate that it is the map that was used."""
