"""The entry points that MLC's packages have."""
