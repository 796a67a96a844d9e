"""Requests to a running project: the channel they come on, and their handlers."""
