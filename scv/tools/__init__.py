"""Built-in tools: one module each, all behind the `Tool` port of the core."""
