"""Agents: policies with a memory."""
