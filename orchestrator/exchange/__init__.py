"""Artifacts and people: differences between versions, files in and files out."""
