"""app/*: the apps that there are, and the ones that an account can use."""
