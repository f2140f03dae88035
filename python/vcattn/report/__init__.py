"""``python -m vcattn.report``: what recipes do to clips of a video model. Fetches nothing."""
