"""What a step does on devices: fields, stages, forward passes, terms of the loss, the update."""
