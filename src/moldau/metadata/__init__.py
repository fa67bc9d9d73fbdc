"""What the cluster knows: an image made of records, and the controller that decides which come next."""
