"""config/*, model/*, permissionProfile/* and other lists of what can be chosen."""
