"""PySpark on Moldau: the data source `moldau`, batch and streaming, read and write."""
