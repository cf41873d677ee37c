"""A service: the page to drop a photo on, and the same over HTTP, see `faircontext serve`."""
