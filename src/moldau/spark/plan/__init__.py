"""What a query reads, decided on the driver: offsets, ranges, limits, filters, losses. Pure."""
