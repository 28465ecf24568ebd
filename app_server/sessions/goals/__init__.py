"""What a thread works towards, and the turns that it begins for that."""
