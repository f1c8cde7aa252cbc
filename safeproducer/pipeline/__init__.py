"""The life of a record between produce() and its delivery callback: theory of operation, ARCHITECTURE.md in short.

librdkafka batches, retries and sends. This package decides when a record may be given to it, counts what was given, and
says of each record how it ended. A record is given at once (the direct path) as long as nothing speaks against it. If
something does, a throttle time, a silent leader, a long round trip, it waits in this process (the buffered path) and
leaves as one of a counted batch, which becomes exactly one ProduceRequest. Therefore a broker that is not ready has
little of ours in its queues, and at a record's deadline it is mostly known whether the record can be in the log.
Modules are named here without their folder, which docs/internals/file-map.md tells.

Words
  lane              one confluent_kafka producer, and so one producer ID. The direct lane has the application's
                    settings; batch lanes are told when to send. With safeproducer.mode=held there is no direct lane.
  hold              to keep records here, for a reason that explain() gives.
  partition buffer  the records of one partition that wait here (in Java the RecordAccumulator holds all of them).
  in-flight batch   what a batch lane has of one partition, until each record has its report.
  sender            the thread of a producer that does all work of the buffered path.
  report            librdkafka's word on one record; the application learns of it in its next poll() or flush().

Acceptance, on the application's thread
  SafeProducer.produce counts the record as accepted (`delivery_counters`) before the record goes on: its report may
  come on another thread before produce() returns. It then calls `Route.send` (`route`), which is the native produce()
  itself, or Intake.send while there is a reason to hold anything. A record that raises there is subtracted again.

The direct path
  The direct lane chooses the partition, batches and sends. poll() or flush() (`polling`) serves it on the
  application's thread, where the report callback counts the record (`delivery_counters`), with its outcome from
  `failures`, and then runs hooks and the application's callback. While the application does not poll, the sender takes
  the reports (`Serving.stand_by`) and keeps them in `report_queue`.

The buffered path
  1. Intake (`intake`), on the application's thread: checks the arguments, chooses the partition, appends the record to
     its PartitionBuffer (`partition_buffer`), and wakes the sender if something is due (`schedule`). A record of a
     partition that is not held, and of which nothing waits, goes to the direct lane from here.
  2. Maintenance.turn (`turn`), on the sender: makes and retires lanes, serves the batch lanes, reads statistics,
     has the dispatcher pump, and says which path the next record takes.
  3. Dispatcher.pump (`dispatcher`): expires what is too late (`expiry`), repeats what a quota rejected
     (`quota_retry`), gathers the facts of each busy partition (`facts`), and has `policy.decision` say whether a batch
     may leave; `lane_choice` says by which of several lanes. Where the reason to hold is over and no batch lane is
     wanted, the records go to the direct lane.
  4. BatchLane.hand_over (`batch_lane`) gives the batch to its native producer; an InFlightBatch (`in_flight_batch`)
     follows it. A batch that is short of its count is sent by a flush trigger (`flush_timer`).
  5. The sender serves the lane. Reports go into Reports (`reports`); when a batch's last one is there, the dispatcher
     no longer counts the batch for its partition, lane and broker.
  6. poll() or flush() runs what waits there (`report_queue`), on the application's thread, as on the direct path.

A statistics event
  ClientEvents (`events`) gets it on whichever thread serves, leaves the text with ClientUpdates (`updates`), and tells
  stats_cb (`told_statistics`). The sender reads it in its next turn: round trips (`round_trip`), leaders
  (`cluster_view`), backlogs (`direct_lane`), windows (`windows`), what proves that a record was not sent
  (`failures`). Then it looks at each partition buffer again. A throttle time does not wait for that turn: it holds at
  once.

The end, and another owner
  close() (`closing.py`) waits until each record has its report, and closes the native producers. With the policy
  `reuse` they are kept instead (`reuse`), and the next producer of the process with an equal configuration
  takes them over. One has one owner at a time: librdkafka's callbacks go to a Relay (`native_producers`), whose
  owner changes in one step. librdkafka's counts go on, and Given (`given`) keeps them. See docs/internals/reuse.md.

Who owns which state, and which thread changes it (ARCHITECTURE.md has every state)
  DeliveryCounters                accepted, delivered, failed: any thread, by in-place addition
  RecordBuffer, PartitionBuffer   what waits: produce() opens and appends, the sender takes away
  Dispatcher                      what a partition waits for: the sender
  LanePool, BatchLane             which lanes there are, their batches and sequence gaps: the sender
  InFlightBatch                   the records of a batch, its deadlines, what was reported of it: the sender
  DirectLane                      backlogs, gaps and purges: the sender; produce() takes from its slow start
  ClusterView, RoundTrip          partitions, brokers, outdated metadata, round trips: the sender, and the threads of
                                  `metadata` and `asker`; each value is replaced whole
  Throttle (`throttles`)          deadlines, for all producers of a process: the threads that serve throttle_cb
  Reports, ReportQueue            reports on their way: who serves adds, who polls takes
  Gate                            the permit for the first producer ID: any thread asks with the first record, and the
                                  sender again for records that wait
  Route, Client                   the path, and whether native producers may be called: the sender chooses; any thread
                                  may hold; close(), a fork and a fatal error end it

Which thread does what
  application   produce() appends and rings; poll() and flush() serve the direct lane and run callbacks. A signal
                handler may come between any two steps there, raise, or call any method: no lock of ours is held, and
                what has to be one step is one, without a call in it.
  sender        all that takes more than one step. No callback, hook or log handler of the application runs on it:
                callbacks wait for poll(); hooks and log lines have a thread of their own (`notices`).
  others        `metadata` and `asker` ask brokers on threads of their own, and wake the sender.
  Native producers and threads never keep the engine alive (`assembly` gives them weak references): `del producer` ends
  all of it.

Lock order
  1. Sender.at_work: a turn of the sender. Notices._work: one notice. Neither is taken inside the other; a fork waits
     for both, a second at most.
  2. LaneClient._asking: a question of that lane's. Inside a turn, or on the thread that asks.
  3. Gate._lock: while the guard is asked with the first record; waited for 0.1 s at most, never by the sender.
  4. ThrottleRegistry, Hooks: arithmetic only; nothing is called under them.
  No thread of the application waits for a lock that the sender takes, but in a fork and in a round of the ledger: a
  signal handler may have interrupted it, and wait for the sender. It queues what it has, or replaces whole values.
"""
