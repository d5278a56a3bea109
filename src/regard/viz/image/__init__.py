"""Sheets of sample images, and the script that lays weights over an image."""
