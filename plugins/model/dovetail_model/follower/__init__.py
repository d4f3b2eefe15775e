"""Followers: rules for updating the weights of a model role that is not trained."""
