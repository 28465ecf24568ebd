"""The side of the router: the frames, the signals in them, the stream of one session."""
