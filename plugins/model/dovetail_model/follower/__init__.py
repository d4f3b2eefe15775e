"""How the weights of a model role that is not trained move."""
