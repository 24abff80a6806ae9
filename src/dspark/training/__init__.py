"""Training of drafters: objectives, batches, optimisers, the training loop."""
