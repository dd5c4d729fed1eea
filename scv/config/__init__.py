"""Configuration: one settings model, its layers, and where an instance lives."""
