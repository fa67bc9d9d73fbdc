"""One partition on disk, in Kafka's files: segments, indexes, producers, retention, compaction, recovery.

Nothing here waits, and the time is an argument. `Log.open` brings a directory into order and gives a `Log`:

- `append_as_leader` and `append_as_follower` write, `read` gives a slice of a file, `offset_for_timestamp`,
  `offset_of_max_timestamp` and `end_offset_for_epoch` look things up; `begin_epoch` and
  `advance_high_watermark` tell the log what its replicas have agreed on.
- Durable is what was flushed: `work = log.begin_flush()`, `await disk.flush(work.flush)`,
  `log.flushed(work)`; then `flushed_end_offset`, the recovery point, has moved to what was the end at first.
  After a flush that failed the log must not be used any more.
- To truncate: write a recovery-point checkpoint of `end_after_truncation`, and flush it; `truncate_to` (or
  `truncate_fully`); flush the log; only then append. Otherwise a crash could take what was cut off on purpose
  for damage, or mix old bytes with new ones.
- To delete: write a checkpoint of the new start, and flush it; `advance_log_start`; `delete_segments`. The
  settings ask for `start_after_retention`, users for any committed offset. Otherwise a crash could bring back
  what somebody saw gone.
- From time to time: `remove_deleted`, `expire_producers`, `begin_scrub` (its `carry_out` apart from
  everything else, then `scrubbed`), and if `compaction.is_due`, a
  `compaction.Compaction`: call `step` until `is_done`, and flush what a step returns before the next one.
- To stop: `close`, flush its work, `flushed`. With the checkpoints written and `write_clean_shutdown` flushed
  after that, the next `Log.open` may be told `is_clean`.

`checkpoints` has the files of the data directory, `config.LogConfig` the settings. A corrupt stretch below
the recovery point that recovery or a scrub has found is listed in `Log.corrupt_ranges`, and reading it raises
CORRUPT_MESSAGE.
"""
