"""What acting by code takes beside acting by calls in JSON: a pack of tasks of our own, played perfectly in each way."""
