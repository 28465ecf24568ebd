"""Request to a model: its body, and the parts that come from users and the environment."""
