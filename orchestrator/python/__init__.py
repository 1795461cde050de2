"""A project's own Python: loaded by path, hashed by what is used of it, read into the same specs as YAML."""
