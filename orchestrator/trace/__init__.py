"""What happened and why, as documents: the stable JSON shapes, and the answer to "what did this model see?"."""
