"""Every bound, with its reason."""

from __future__ import annotations

from typing import Final

# Input
PAYLOAD_BYTES_DEFAULT: Final = 1024 * 1024  # larger bodies belong in an object store
LANE_ID_BYTES: Final = 64  # printable and short enough for every listing
NAME_BYTES: Final = 256  # kinds, namespaces, workers, creators: they stand in indexes
IDEMPOTENCY_KEY_BYTES: Final = 512  # room for composed keys, still an index key
REASON_BYTES: Final = 4096  # a sentence or a short trace, not a log
FAILURE_REASON_BYTES: Final = 65_536  # a whole traceback; longer text is cut, never refused
TAG_VALUE_BYTES: Final = 1024  # tags are filtered by value and so indexed
JSON_DEPTH_MAX: Final = 64  # deeper than anything made by hand, far from breaking a decoder
TAGS_MAX: Final = 64
CAPABILITY_TOKENS_MAX: Final = 256
CAPABILITY_CSV_BYTES: Final = 4096
MARK_DEAD_REASON_BYTES: Final = 256

# Scheduling
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9000  # the seeds' range; values outside are clamped, not refused
PRIORITY_GIVEN_MAX: Final = 2**31  # beyond that, either way, it is a mistake and not an urgency
LEASE_TTL_MS_MIN: Final = 1_000  # below a second a pause of the collector loses the lease
LEASE_TTL_MS_MAX: Final = 3_600_000  # above an hour a crash strands work too long
LEASE_TTL_MS_DEFAULT: Final = 30_000
GRANT_TTL_MS_MAX: Final = 60_000
GRANT_TTL_MS_DEFAULT: Final = 5_000
WORKER_TTL_MS_MIN: Final = 1_000
WORKER_TTL_MS_MAX: Final = 3_600_000
CLAIM_MAX: Final = 1_000  # executions in one claim: bounds the rows one transaction locks
CLAIM_BYTES_MAX: Final = 32 * 1024 * 1024  # inputs in one claim: all are in memory at once
CREATE_MAX: Final = 10_000  # executions in one create_executions call
BATCH_ITEMS_MAX: Final = 10_000  # items that submits may gather in one execution
BATCH_MAX: Final = 1_000  # commands one commit may carry
HANDLERS_MAX: Final = 100_000  # of one worker
COMMANDS_MAX: Final = 1_000  # operations one request to a server may carry

# Policies
RETRIES_MAX: Final = 1_000_000
RETRY_DELAY_MS_MAX: Final = 7 * 86_400_000
RECLAIM_COUNT_DEFAULT: Final = 1000
REPLAY_COUNT_DEFAULT: Final = 10
DEDUP_WINDOW_MS_DEFAULT: Final = 86_400_000
ANSWER_TTL_MS: Final = 86_400_000  # how long a repeated call gets its first reply
DURATION_MS_MAX: Final = 100 * 365 * 86_400_000
INSTANT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999

# Budgets and quotas
DIMENSIONS_MAX: Final = 64  # named dimensions in one budget or one report
BUDGETS_ATTACHED_MAX: Final = 32  # budgets one execution may name: each is checked at every claim
DEDUP_TTL_MS_DEFAULT: Final = 86_400_000  # how long a report's key is remembered
HOLD_TTL_MS_DEFAULT: Final = 600_000  # an unsettled reservation comes back after ten minutes
QUOTA_WINDOW_SECONDS_MAX: Final = 366 * 86_400
QUOTA_LIMIT_MAX: Final = 1_000_000_000
QUOTA_JITTER_MS_MAX: Final = 3_600_000
LANE_WEIGHT_MAX: Final = 1_000
FAIR_COUNTED_MAX: Final = 1_000  # executions with fair keys that `explain` counts before one
LANE_WEIGHTS_MAX: Final = 1_000  # tenants, or fair keys, with a weight of their own on a lane
AGING_MS_MAX: Final = 365 * 86_400_000

# Suspension
WAITPOINTS_MAX: Final = 32  # bindings of one suspension
SIGNAL_PAYLOAD_BYTES: Final = 65_536  # a signal is a word and a small form, not a document
SCHEMA_STEPS_MIN: Final = 10_000  # of comparing a signal's payload with its type, a few ms
SCHEMA_STEPS_PER_BYTE: Final = 10  # more for longer ones: work grows with the payload
SCHEMA_STEPS_MAX: Final = 200_000
SIGNALS_MAX_DEFAULT: Final = 10_000  # per execution; 0: no limit
SIGNAL_BYTES_TOTAL: Final = 16 * 1024 * 1024  # of all payloads one execution is sent in its life
SUSPEND_KEY_TTL_MS: Final = 7 * 86_400_000
TIMEOUT_SKEW_MS: Final = 600_000  # a timeout so far in the past is a mistake, not a late clock
KEY_GRACE_MS_DEFAULT: Final = 86_400_000  # how long a retired signing key still verifies

# Streams
FRAME_BYTES: Final = 65_536  # one frame is a line or a token, not a document
FRAMES_MAX: Final = 1_000  # frames in one append: bounds what one transaction writes
APPEND_BYTES_MAX: Final = 8 * 1024 * 1024  # of all frames of one append
DURABLE_FRAMES_DEFAULT: Final = 10_000  # durable frames a stream keeps unless its policy says so
DURABLE_FRAMES_MAX: Final = 1_000_000
SUMMARY_FRAMES: Final = 64  # summary frames a stream keeps: the document has the rest
SUMMARY_BYTES: Final = 256 * 1024  # of a rolling document: each change rewrites it
SUMMARY_DEPTH: Final = 16  # levels below the root
TRIM_MAX: Final = 1_000  # frames one append removes beside as many as it adds
FRAME_TTL_MS_DEFAULT: Final = 15_000  # of best-effort frames: the middle of what is advised
LIVE_FRAMES_FLOOR: Final = 64
LIVE_FRAMES_CEILING: Final = 16_384
LIVE_RATE_ALPHA: Final = 0.2  # the weight of the newest frame in the rate of best-effort frames
READ_FRAMES_MAX: Final = 10_000  # frames in one page
READ_FRAMES_DEFAULT: Final = 100
READ_FRAME_BYTES: Final = 16 * 1024 * 1024  # of the payloads of one page, about
TAIL_MS_MAX: Final = 30_000  # longer waits are asked for again: a lost connection is noticed then
TAILS_DEFAULT: Final = 10_000  # waiting tails of one engine: each is a task with its buffers
TAIL_LOOK_MS: Final = 1_000  # how late a tail may be when every hint is lost

# Logs of runs: enough to see what went wrong; a program that says more has a log of its own
LOG_LINES_MAX: Final = 1_000  # lines of one attempt
LOG_LINE_BYTES: Final = 4_096  # of a message; a longer one is cut by its worker
LOG_BYTES_MAX: Final = 1024 * 1024  # of all lines of one attempt
LOG_CHUNK_LINES: Final = 200  # lines of one row: a page reads few it does not show
LOG_CHUNK_BYTES: Final = 65_536

# Mailboxes; what is unread is bounded as signals are
MAILBOXES_MAX: Final = 16  # of one execution: a wait may listen at all of them
MAILBOX_NAME_BYTES: Final = 64  # its waitpoints have it in their keys
REPLY_TTL_MS: Final = 86_400_000  # how long an answer is kept for its sender

# Journals
STEP_NAME_BYTES: Final = 256
ENTRY_KEY_BYTES: Final = 512
ENTRIES_MAX: Final = 1_000  # entries of one checkpoint: bounds what one transaction writes
SETTLEMENTS_MAX: Final = 16  # reservations that end with one entry
CHECKPOINT_BYTES_MAX: Final = 8 * 1024 * 1024  # of all values of one checkpoint
VERSION_BYTES: Final = 128  # of the version of a task
ENTRY_ARGUMENTS_BYTES: Final = 1_024  # longer arguments of steps are not kept
JOURNAL_ENTRIES_MAX: Final = 10_000  # entries of a chapter: each run of its handler reads them
JOURNAL_ENTRIES_WARN: Final = 2_500
JOURNAL_BYTES_MAX: Final = 16 * 1024 * 1024  # of all values of a chapter
JOURNAL_BYTES_WARN: Final = 4 * 1024 * 1024
PATCH_BYTES: Final = 128  # of the name of a change of the code
UNDOS_MAX: Final = 100  # open undos of an execution: its end creates them in one transaction
HOOK_RESULT_BYTES: Final = 64 * 1024  # a larger result is not told to hooks
PUBLISHED_BYTES: Final = 65_536  # of what a run publishes: each change rewrites it
BRANCHES_MAX: Final = 1_000  # branches of a handler at once

# Reading
PAGE_DEFAULT: Final = 100
COUNTED_MAX: Final = 1_000_000  # of a count that is bounded
PAGE_MAX: Final = 1000  # items in one page
SUBSCRIBE_WAIT_MS: Final = 30_000  # shorter than what proxies let a request rest
SUBSCRIBE_WAIT_MS_MAX: Final = 300_000
FEED_PAGES_MAX: Final = 10  # pages of a log that one read of a feed looks through
REDELIVER_MS_DEFAULT: Final = 30_000  # a consumer that takes longer says that it goes on
REDELIVER_MS_MIN: Final = 1_000
REDELIVER_MS_MAX: Final = 3_600_000
GROUPS_MAX: Final = 1_000  # consumer groups of one installation: listings read each one's position
DELIVERIES_MAX: Final = 64  # of one group at once: its row is the lock of them
TOKEN_LIFE_MS_DEFAULT: Final = 365 * 86_400_000
TOKEN_LIFE_MS_MIN: Final = 1_000
TOKEN_LIFE_MS_MAX: Final = 10 * 365 * 86_400_000
TOKEN_USE_MS: Final = 300_000  # how often the use of an access token is noted
TOKEN_NAMESPACES_MAX: Final = 100
ACCESS_TOKENS_MAX: Final = 1_000  # of one installation
SESSION_IDLE_MS_DEFAULT: Final = 12 * 3_600_000
SESSION_LIFE_MS_DEFAULT: Final = 7 * 86_400_000
SESSION_MS_MIN: Final = 1_000
SESSION_MS_MAX: Final = 365 * 86_400_000
SESSION_USE_MS: Final = 300_000  # how often the use of a session is noted
SESSION_ROLES_MAX: Final = 100
AUDIT_RETENTION_MS: Final = 365 * 86_400_000
AUDIT_TEXT_BYTES: Final = 1_024  # of a subject or a reason in the audit trail
REFUSALS_MAX: Final = 1_000  # entries for refused calls that are added at once
GROUP_MOVE_MS: Final = 60_000  # how often a group without events notes how far it has looked
TIMELINE_MAX: Final = 2_000  # events of one kind in the timeline of an execution
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024  # of a page over HTTP: a longer one is cut
CURSOR_BYTES: Final = 2048  # two names, their listing, and a third more for Base64
TEXT_SCAN_ROWS: Final = 20_000  # rows one page of a text search may look at
FIND_DIGITS_MIN: Final = 4  # a shorter part of an id matches too many
FIND_AMONG: Final = 100_000  # newest executions, their ids compared with an end: tens of ms
FIND_FLOWS_AMONG: Final = 10_000  # newest flows, whole rows

# Background work
DUE_BATCH: Final = 500  # records one tick of a loop moves in one transaction
ASIDE_MS_MIN: Final = 1_000  # first pause before a due record that cannot be moved is tried again
ASIDE_MS_MAX: Final = 600_000  # and the longest pause: it may have been repaired
ASIDE_MAX: Final = 10_000  # such records one process remembers
# A piece holds its executions, and on SQLite the file, for some ten ms; the pause is for others.
OPERATION_PIECE: Final = 200  # executions that one transaction of a bulk operation acts on
OPERATION_PAUSE_MS: Final = 50  # between two of them
OPERATIONS_AT_ONCE: Final = 4  # operations that go on between two searches for due work
OPERATION_LIMIT_MAX: Final = 1_000_000_000  # executions of one operation that has a limit
OPERATION_RETENTION_MS: Final = 14 * 86_400_000  # how long an operation that is over is kept
STOP_GRACE_S: Final = 5.0  # how long a turn of background work may take to end at shutdown
RETENTION_MS_DEFAULT: Final = 86_400_000
FAILED_RETENTION_MS_DEFAULT: Final = 14 * 86_400_000  # people look at failures later
WORKER_EVENT_RETENTION_MS: Final = 7 * 86_400_000
STATISTIC_RETENTION_MS: Final = 30 * 86_400_000
UNMET_LOOKS: Final = 500  # routes that one page of unmet work looks at
FAILURE_WINDOW_MS: Final = 86_400_000  # how far back failures are counted
FAILURE_MINUTES_MS: Final = 2 * 3_600_000  # the same minute by minute
FAILURE_GROUPS_MAX: Final = 500  # in a page
FAILURE_MESSAGE_BYTES: Final = 512
FAILURE_LINE_MAX: Final = 10_000_000
FAILURE_WORDS: Final = 8  # kinds, and versions, that a group names
FAILURE_KNOWN_MS_MAX: Final = 90 * 86_400_000
STANDING_MAX: Final = 50_000  # executions of a kind that gauges count
STATISTIC_BATCH: Final = 5_000  # entries of each log that one transaction counts
STATISTIC_BUDGETS: Final = 1_000  # dimensions of budgets that one transaction looks at
STATISTIC_IDLE_MS: Final = 60_000  # how often a count that found nothing is noted
STATISTIC_SETTLED_MS: Final = 5_000  # no transaction first writes so long after it read the clock

# Conflict handling
CONFLICT_TRIES: Final = 5
CONFLICT_DELAY_MS_BASE: Final = 5
CONFLICT_DELAY_MS_CAP: Final = 250

# Partitions are part of the execution id; the count is fixed at installation.
FLOW_PARTITIONS_DEFAULT: Final = 256

# Flows
FLOW_MEMBERS_MAX: Final = 100_000  # one row is the lock of a graph; more belongs in several flows
FLOW_NODES_MAX: Final = 10_000  # nodes in one submit_flow call
FLOW_EDGES_MAX: Final = 50_000  # edges in one submit_flow call
GRAPH_ROWS_MAX: Final = 2_000  # nodes, edges or folds of a drawing
GRAPH_LEVELS_MAX: Final = 100  # columns of a drawing that is folded
GRAPH_RANKS_MAX: Final = 20  # of one that does not tell tasks apart
GRAPH_NEXT_MAX: Final = 100  # members before and behind one that are named with it
NODE_NAME_BYTES: Final = 256
RESULTS_UNSIZED_MAX: Final = 32  # results read for inputs before their sizes are checked
CASCADE_MAX: Final = 1_000  # edges resolved or members cancelled in one transaction
RETRIED_AT_ONCE: Final = 500  # members that one call of retry_flow runs again
CANCEL_INLINE_MAX: Final = 2_000  # members cancelled in the transaction that cancels their flow
CANCEL_GRACE_MS_DEFAULT: Final = 30_000  # how long cancel_flow_header leaves members to its caller
TASK_RETRY_MS: Final = 20  # before deferred work that met a locked row is tried again
TASK_RETRY_MS_MAX: Final = 5_000

# Schedules
CRON_BYTES: Final = 256  # of one expression
CRONS_MAX: Final = 20  # expressions of one schedule
AT_MAX: Final = 1_000  # instants of one schedule
EXCEPTIONS_MAX: Final = 1_000  # dates on which one does not tick
EVERY_MS_MIN: Final = 1_000  # ticks are whole seconds
CATCH_UP_WINDOW_MS_DEFAULT: Final = 86_400_000
CATCH_UP_MAX_DEFAULT: Final = 100
CATCH_UP_MAX: Final = 1_000  # they are started one after the other, before any later tick
LATE_TICK_MS: Final = 60_000  # a tick that is later was missed
FLAPPING_MS: Final = 86_400_000  # how long it is told that versions of a declaration took turns
TICKS_AT_ONCE: Final = 1_000  # of one schedule in one transaction
STARTS_AT_ONCE: Final = 1_000  # executions that the schedules of one transaction start
PREVIEW_MAX: Final = 1_000
BACKFILL_MAX: Final = 10_000  # ticks of a range
BACKFILL_BATCH: Final = 500  # of these, in one transaction
SCHEDULES_DECLARED_MAX: Final = 10_000  # by one program
TICK_RETENTION_MS: Final = 7 * 86_400_000  # of ticks that ran
MISSED_TICK_RETENTION_MS: Final = 90 * 86_400_000  # of all others
