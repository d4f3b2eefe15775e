"""The parts of a step that run on devices: fields, stages, forward passes, terms of the loss, the update."""
