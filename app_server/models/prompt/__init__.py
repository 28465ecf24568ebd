"""What a model is sent: the body of its request, and what users and the environment put into it."""
