"""The words that every other package uses: ids, errors, settings and decisions."""
