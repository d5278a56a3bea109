"""Attributions as figures and pages: texts tinted by scores, agreement of methods, deletion curves."""
