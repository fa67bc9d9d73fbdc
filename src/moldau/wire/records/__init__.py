"""Record batches, version 2: header and CRC, records, compression, columns."""
