"""Where stores are made: by name of what is wanted of them, as commands do without most."""
