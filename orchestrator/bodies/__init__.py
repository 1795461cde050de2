"""Steps with a body in Python: what `ctx` gives them, the questions they ask, and how a killed body is recalled."""
